"""Tasks around PyTorch modules: many members of an unmodified module, supervised learning, and rewards for writing."""
