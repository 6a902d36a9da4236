"""Graphs on PyTorch: a module and its loss to a graph, and a graph back to what runs. Needs torch."""
