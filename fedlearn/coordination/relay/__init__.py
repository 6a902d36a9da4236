"""Relays: volunteers to the server above, and coordinators to the volunteers below."""
