"""Sums of gradients: exact ones, rounded ones, and the form in which they travel."""
