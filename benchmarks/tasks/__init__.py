"""Tasks of other kinds than text, beside other libraries."""
