"""Tasks that users bring, and the kinds of task that turn one into an objective."""
