"""The Python interface for scripts and notebooks: training, trained runs, callbacks."""
