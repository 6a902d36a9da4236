"""Members of one module, run sequentially or batched."""
