"""Programs that measure this machine; docs/benchmarks.md says what each finds and how to run it."""
