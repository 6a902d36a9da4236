"""Tasks around PyTorch modules: many members of one unmodified module, examples to learn from, rewards for writing."""
