"""Jobs of a hub: their folders, tasks and processes."""
