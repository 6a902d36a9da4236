"""Limits on the size of a model, set by messages and memory."""

from fedlearn.es.optimizers import MOST_SLOTS

MAX_PARAMETERS = 10**9
"""The most parameters of a model; a Snapshot holds weights, start and two moments in float32, each below 4 GiB."""

MAX_SUMMED_PARAMETERS = 2**24
"""The most parameters of a model whose estimates travel in Results and Updates, with a byte for each parameter."""

UNBOUNDED = 2**62
"""The limit in bytes that stands for no limit."""

PARAMETER_BYTES = 3 * 4 * (1 + MOST_SLOTS) + 12
"""Bytes of memory for each parameter: its weight and what the optimizer keeps, in float32, once held and twice on their
way, and 12 for the estimate and its digest, or for what an optimizer in NumPy works with."""

SUM_BYTES = 48
"""Bytes of a parameter's sum of gradients: in PyTorch's floats, in double ones, as integers and as random words."""

MEMBERS_AT_LEAST = 8
"""Number of members that memory must have room for beside weights and data, since a few run at once."""
