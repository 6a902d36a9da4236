"""Members of PyTorch modules, as they are and cut into stages."""
