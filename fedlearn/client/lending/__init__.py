"""How much of a machine is lent, and when."""
