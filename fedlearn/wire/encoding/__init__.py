"""Messages as bytes: encodings, chunks and frames."""
