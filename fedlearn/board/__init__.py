"""A page that shows runs: a process of its own, which reads run folders and nothing else."""
