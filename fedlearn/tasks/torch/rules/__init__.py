"""Rules for PyTorch's operators, which compute with perturbed matrices without making them."""
