"""Where the noise of a step goes, how large it is, and which gradients need no noise."""

from typing import Literal

import msgspec

Space = Literal["weights", "activations"]
Head = Literal["perturbed", "closed-form"]


class Perturbation(msgspec.Struct, frozen=True, array_like=True):
    """How the members of a step differ from the unperturbed model."""

    sigma: float
    """Standard deviation of the noise on weights, before relative scales, or on the inputs of hidden units."""
    rank: int
    """Rank of a matrix's noise; without meaning for noise on activations."""
    space: Space = "weights"
    """Members have weights of their own, or noise on the activations of every layer and token."""
    head: Head = "perturbed"
    """The head is perturbed like the rest, or its gradient takes its closed form on the unperturbed trajectory."""
    logit_sigma: float = 0.0
    """Standard deviation of the noise on logits, where activations and the head are perturbed."""
    discount: float = 0.0
    """Factor on the weight of a loss for each token by which it comes after the noise on an activation."""
    correction: float = 1.0
    """Weight of what trials say beyond the control variates' prediction, where activations are perturbed."""
    antithetic: bool = False
    """Members 2k and 2k + 1 are an antithetic pair: both have the noise of 2k, the odd one negated."""

    def scaled(self, factor: float) -> "Perturbation":
        """The same perturbation with noise of another size."""
        return msgspec.structs.replace(self, sigma=self.sigma * factor, logit_sigma=self.logit_sigma * factor)

    @property
    def is_summed(self) -> bool:
        """Whether volunteers send sums of gradients, because a gradient that takes more than losses cannot be
        replayed."""
        return self.space == "activations" or self.head == "closed-form"
