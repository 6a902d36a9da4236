"""How large a model may be, so that messages can hold it."""

from fedlearn.es.optimizers import MOST_SLOTS

MAX_PARAMETERS = 10**9
"""Of any model: a Snapshot holds weights, start and two moments in float32, each of them below 4 GiB."""

MAX_SUMMED_PARAMETERS = 2**24
"""Of a model whose estimates travel in Results and Updates, with a byte for each parameter."""

UNBOUNDED = 2**62
"""Bytes, where nobody sets a limit."""

PARAMETER_BYTES = 3 * 4 * (1 + MOST_SLOTS) + 12
"""Bytes of memory for each parameter: its weight and what the optimizer keeps, in float32, once held and twice on their
way, and 12 for the estimate and its digest, or for what an optimizer in NumPy works with."""

MEMBERS_AT_LEAST = 8
"""Members that memory must have room for: a few run at once, beside weights and data."""
