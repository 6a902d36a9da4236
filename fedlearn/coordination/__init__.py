"""The coordinator (server), the worker (volunteer) and the relay, as pure state machines with effects."""
