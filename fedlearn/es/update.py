"""The Update: everything that changes weights in one step, as one value that is journalled, broadcast and replayed."""

from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from fedlearn.es.attempts import Attempt
from fedlearn.es.optimizers import AnyOptimizer
from fedlearn.es.sums.estimate import NO_ESTIMATE, CodedEstimate
from fedlearn.es.sums.moments import Renormalization

Int8Array = NDArray[np.int8]
DecayTowards = Literal["zero", "start"]

MAX_SPANS = 2**18
"""The most spans: decoded, each takes a hundred times its bytes on the wire."""


class Update(msgspec.Struct, frozen=True, array_like=True, tag=32, eq=False):
    """One optimizer step, complete: besides it a replica needs only the block of data that it names.

    `spans` lists the members that count as (first member, number of members), both multiples of `group_size`, ascending
    and disjoint. The gradient is replayed or summed: either `utilities` holds one int8 per member, span after span, and
    every replica computes the members' noise again; or `estimate` holds the volunteers' sum.
    """

    step: int
    block: bytes
    """Name (16 bytes) of the block of data that the members were evaluated on; empty where a task has no data."""
    spans: Annotated[tuple[tuple[int, int], ...], Meta(max_length=MAX_SPANS)]
    utilities: Int8Array
    rank: int
    """Rank of the noise on a matrix, by whose root the integers of the gradient are multiplied; 0 for rounded sums,
    which lack that factor."""
    group_size: int
    gradient_scale: float
    """Factor on the integer estimate; the product estimates the gradient of the loss."""
    optimizer: AnyOptimizer
    antithetic: bool
    """Whether members 2k and 2k + 1 are an antithetic pair: both have the noise of 2k, the odd one negated."""
    weight_decay: float
    """Decoupled weight decay as in AdamW: before the step, weights move by this times the learning rate of their
    way."""
    decay_towards: DecayTowards
    """The target of weight decay: "zero", which spares vectors, or "start", the weights with which the run began."""
    elapsed_s: float
    """Seconds for which the steps up to this one were open; the schedules go on from here *after* this step."""
    shaping_scale: float
    """The running standard deviation of losses within groups *after* this step. This, `elapsed_s` and `attempt` are the
    strategy's only state."""
    estimate: CodedEstimate = NO_ESTIMATE
    """The sum of gradient estimates; empty where the gradient is replayed."""
    renormalization: Renormalization | None = None
    """The change of mean and deviation of what members observe; None where nothing is normalised so."""
    attempt: Attempt | None = None
    """The state of the attempt after this step, and what follows; None in a run that never begins again."""

    @property
    def is_summed(self) -> bool:
        """Whether the gradient is given by `estimate`, and not replayed."""
        return self.estimate.is_there

    @property
    def n_members(self) -> int:
        """Number of members that count."""
        return sum(count for _, count in self.spans)


def elapsed_s_after(last: Update | None) -> float:
    """Seconds for which the steps of a run were open, given its last Update, or None if it has taken no step."""
    return last.elapsed_s if last is not None else 0.0
