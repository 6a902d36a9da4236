"""Where bytes travel: TCP between machines, and memory between two ends in one process."""
