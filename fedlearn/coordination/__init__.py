"""Who does what when: the coordinator (server), the worker (volunteer) and the relay, as pure machines with effects."""
