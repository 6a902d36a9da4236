"""What differs between Linux, macOS and Windows; no other package imports what only some of them have."""
