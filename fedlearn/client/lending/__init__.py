"""Limits on how much of a machine is lent, and when."""
