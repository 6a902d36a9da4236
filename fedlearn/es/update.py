"""Everything that changes weights in one step, as one value: what is journalled, broadcast and replayed."""

from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from fedlearn.es.estimate import NO_ESTIMATE, CodedEstimate
from fedlearn.es.optimizers import AnyOptimizer

Int8Array = NDArray[np.int8]
DecayTowards = Literal["zero", "start"]

MAX_SPANS = 2**18
"""A hundred times the bytes that travel: each is made of objects where it is decoded."""


class Update(msgspec.Struct, frozen=True, array_like=True, tag=32, eq=False):
    """One optimizer step, complete: a replica needs nothing else but the block of data named here.

    `spans` lists the members that count as (first member, number of members); both are multiples of
    `group_size`, ascending and disjoint. A gradient is replayed or summed: either `utilities` holds one int8 a member,
    span after span, and every replica regenerates the members' noise; or `estimate` holds the volunteers' sum.
    """

    step: int
    block: bytes
    """Name (16 bytes) of the block of data that the members were evaluated on; empty where a task has no data."""
    spans: Annotated[tuple[tuple[int, int], ...], Meta(max_length=MAX_SPANS)]
    utilities: Int8Array
    rank: int
    """Of a matrix's noise in the integers of the gradient, which grow with its root; 0 of rounded sums, which don't."""
    group_size: int
    gradient_scale: float
    """Multiplies the integer estimate; the product estimates the gradient of the loss."""
    optimizer: AnyOptimizer
    antithetic: bool
    """Members 2k and 2k + 1 have the noise of 2k, the odd one negated."""
    weight_decay: float
    """Decoupled, as in AdamW: before the step weights are moved by `learning_rate * weight_decay` of their way."""
    decay_towards: DecayTowards
    """Where to: "zero", which spares vectors, or the weights with which the run began."""
    elapsed_s: float
    """Seconds for which the steps up to this one were open: where the schedules stand *after* it."""
    shaping_scale: float
    """Running standard deviation of in-group losses *after* this step; with `elapsed_s` all that the strategy keeps."""
    estimate: CodedEstimate = NO_ESTIMATE
    """The sum, or empty where the gradient is replayed."""

    @property
    def is_summed(self) -> bool:
        """Whether the gradient is the estimate's, not replayed."""
        return self.estimate.is_there

    @property
    def n_members(self) -> int:
        """Members that count."""
        return sum(count for _, count in self.spans)


def elapsed_s_after(last: Update | None) -> float:
    """Seconds for which steps were open in a run whose last Update is this, None before its first step."""
    return last.elapsed_s if last is not None else 0.0
