"""Whether results are true: which are checked, by what tolerance, and what follows."""
