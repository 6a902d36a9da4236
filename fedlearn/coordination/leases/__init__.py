"""Leases of members to volunteers while a step is open."""
