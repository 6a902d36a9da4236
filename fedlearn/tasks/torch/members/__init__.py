"""Members of one module, and the ways in which they are run."""
