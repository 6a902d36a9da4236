"""Models as data: forward and loss as calls of a fixed table of operators. Nothing here runs one or needs torch."""
