"""Differences between Linux, macOS and Windows; no other package imports modules that only some of them have."""
