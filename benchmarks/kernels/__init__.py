"""The arithmetic of a step, and what surrounds it."""
