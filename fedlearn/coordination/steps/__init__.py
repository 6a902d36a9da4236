"""The steps of a run: their sources and ends, and whether they still learn."""
