"""The programs: they perform the effects of the pure machines, and everything else that touches the world."""
