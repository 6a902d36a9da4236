"""What is trained: the tasks that users bring, and the kinds that turn one into an objective."""
