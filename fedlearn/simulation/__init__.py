"""A whole run in one process: for tests, benchmarks and notebooks."""
