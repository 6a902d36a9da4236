"""The perturbation of a step: what the noise is added to, how large it is, and which gradients need no noise."""

import math
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fedlearn.es.optimizers import AnyOptimizer

Space = Literal["weights", "activations", "nothing"]
Head = Literal["perturbed", "closed-form"]

MAX_UNIT_BITS = 48


class LocalSteps(msgspec.Struct, frozen=True, array_like=True):
    """Steps that a volunteer takes by itself, each by the gradients of so many members of a group.

    How far a group's steps lead, negated, is its gradient. The optimizer's state is new in each group.
    """

    optimizer: AnyOptimizer
    n_members: Annotated[int, Meta(ge=1)]


class Perturbation(msgspec.Struct, frozen=True, array_like=True):
    """How the members of a step differ from the unperturbed model."""

    sigma: float
    """Standard deviation of the noise on weights, before relative scales, or on the inputs of hidden units."""
    rank: int
    """Rank of the noise on a matrix; it has no meaning for noise on activations."""
    space: Space = "weights"
    """Whether members have weights of their own, or noise on the activations of every layer and token, or none: then
    the gradient of the unperturbed loss is measured."""
    head: Head = "perturbed"
    """Whether the head is perturbed too, or its gradient is computed in closed form on the unperturbed trajectory."""
    logit_sigma: float = 0.0
    """Standard deviation of the noise on logits, where activations and the head are perturbed."""
    discount: float = 0.0
    """Factor on the weight of a loss for each token by which it comes after the noise on an activation."""
    correction: float = 1.0
    """Weight of the part of the losses that control variates do not predict, where activations are perturbed."""
    antithetic: bool = False
    """Whether members 2k and 2k + 1 are an antithetic pair: both have the noise of 2k, the odd one negated."""

    unit_bits: Annotated[int, Meta(ge=0, le=MAX_UNIT_BITS)] = 18
    """Sums of gradients are integers in units of 2^-unit_bits."""
    local_steps: LocalSteps | None = None
    """Local steps of each group, where there is no noise; None where all gradients are those of the unperturbed
    weights."""
    sum_bits: Annotated[int, Meta(ge=4, le=8)] = 8
    """Bits of a parameter in a sum of gradients where there is no noise, and in their total: 4, or else 8."""
    pass_members: Annotated[int, Meta(ge=0)] = 0
    """Members of each step, where there is no noise, whose rows follow one another in passes over the data; 0: rows are
    drawn with replacement."""

    def scaled(self, factor: float) -> "Perturbation":
        """The same perturbation with sigma multiplied by `factor`."""
        return msgspec.structs.replace(self, sigma=self.sigma * factor, logit_sigma=self.logit_sigma * factor)

    @property
    def in_bytes(self) -> "Perturbation":
        """The same perturbation with a byte a parameter in sums."""
        return msgspec.structs.replace(self, sum_bits=8)

    @property
    def is_summed(self) -> bool:
        """Whether volunteers send sums of gradients, since a gradient that takes more than losses can't be replayed."""
        return self.space != "weights" or self.head == "closed-form"

    @property
    def has_noise(self) -> bool:
        """Whether members differ from the unperturbed model; else gradients of their losses are measured."""
        return self.space != "nothing"

    def usual_length(self, n_groups: int) -> float:
        """How the length of a sum grows with its number of groups: that of noise as its root."""
        return n_groups * 2.0**self.unit_bits if self.space == "nothing" else math.sqrt(n_groups)
