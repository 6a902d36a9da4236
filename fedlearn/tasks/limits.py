"""How large a model may be, so that messages can hold it."""

MAX_PARAMETERS = 10**9
"""Of any model: a Snapshot holds weights, start and two moments in float32, each of them below 4 GiB."""

MAX_SUMMED_PARAMETERS = 2**24
"""Of a model whose estimates travel in Results and Updates, with a byte for each parameter."""

UNBOUNDED = 2**62
"""Bytes, where nobody sets a limit."""
