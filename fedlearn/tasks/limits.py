"""How large a model may be, so that messages hold it."""

MAX_PARAMETERS = 10**9
"""Of a model: a Snapshot holds its weights, its start and two moments in float32, each in one piece below 4 GiB."""

MAX_SUMMED_PARAMETERS = 2**24
"""Of a model whose estimates travel in Results and Updates, a byte a parameter."""

UNBOUNDED = 2**62
"""Bytes, where nobody sets a limit."""

PARAMETER_BYTES = 48
"""Of memory for each parameter: weights and two moments, once held and twice on their way, and estimate with its
digest."""

MEMBERS_AT_LEAST = 8
"""Members that memory must have room for: a few run at once, beside weights and data."""
