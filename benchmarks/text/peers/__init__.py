"""What the learning benchmark compares the product with, on the same network and windows."""
