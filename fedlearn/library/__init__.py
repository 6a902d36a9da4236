"""What scripts and notebooks call: training, runs that were trained, callbacks."""
