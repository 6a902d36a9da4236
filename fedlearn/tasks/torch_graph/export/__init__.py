"""A module and its loss as a graph."""
