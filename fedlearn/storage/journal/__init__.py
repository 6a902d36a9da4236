"""The journal of a run: segments of checked records."""
