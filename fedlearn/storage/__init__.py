"""A run on disk: its folder, checkpoints, journal of updates, metrics and data."""
