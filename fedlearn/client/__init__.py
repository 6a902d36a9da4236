"""The volunteer's process: it performs a worker's effects over a socket, and computes."""
