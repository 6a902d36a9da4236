"""The export of a module and its loss as a graph."""
