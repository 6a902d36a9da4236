"""Tokenizers: bytes, characters, and byte pairs."""
