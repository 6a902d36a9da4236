"""How large a model may be, so that messages hold it."""

MAX_PARAMETERS = 10**9
"""Of a model: a Snapshot holds its weights, its start and two moments in float32, each in one piece below 4 GiB."""

MAX_SUMMED_PARAMETERS = 2**24
"""Of a model whose estimates travel in Results and Updates, a byte a parameter."""

UNBOUNDED = 2**62
"""Bytes, where nobody sets a limit."""
