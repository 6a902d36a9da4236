"""The server's half of the work: its replica, and what it records of a run."""
