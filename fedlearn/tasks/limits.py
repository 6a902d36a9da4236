"""How large a model may be, so that messages can hold it."""

MAX_PARAMETERS = 10**9
"""Of any model: a Snapshot holds weights, start and two moments in float32, each of them below 4 GiB."""

MAX_SUMMED_PARAMETERS = 2**24
"""Of a model whose estimates travel in Results and Updates, with a byte for each parameter."""

UNBOUNDED = 2**62
"""Bytes, where nobody sets a limit."""

PARAMETER_BYTES = 48
"""Of memory for each parameter: weights and two moments, once held and twice on their way, and estimate with its
digest."""

MEMBERS_AT_LEAST = 8
"""Members that memory must have room for: a few run at once, beside weights and data."""
