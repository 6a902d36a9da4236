"""Tasks that users bring in files."""
