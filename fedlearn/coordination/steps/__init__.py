"""Steps of a run: where they come from, how they end, and whether they still learn."""
