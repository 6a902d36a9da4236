"""Graphs on PyTorch: the export of a module and its loss to a graph, and running a graph. Needs torch."""
