"""Who does what when: coordinator (server) and worker (client) as pure machines that return effects."""
