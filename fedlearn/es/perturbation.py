"""Where the noise of a step goes, how large it is, and what of the gradient needs none."""

from typing import Literal

import msgspec

Space = Literal["weights", "activations"]
Head = Literal["perturbed", "closed-form"]


class Perturbation(msgspec.Struct, frozen=True, array_like=True):
    """How the members of a step differ from the unperturbed model."""

    sigma: float
    """Standard deviation of the noise on weights, before relative scales, or on the inputs of hidden units."""
    rank: int
    """Of a matrix's noise; noise on activations has none."""
    space: Space = "weights"
    """Each member has weights of its own, or noise on the activations of every layer and token."""
    head: Head = "perturbed"
    """The head is perturbed like the rest, or takes the closed form of its gradient on the unperturbed trajectory."""
    logit_sigma: float = 0.0
    """Standard deviation of the noise on logits, where activations and the head are perturbed."""
    discount: float = 0.0
    """Weight of a loss for each token that it comes later than the noise on an activation."""

    antithetic: bool = False
    """Members 2k and 2k + 1 have the noise of 2k, the odd one negated."""

    def scaled(self, factor: float) -> "Perturbation":
        """The same with noise of another size."""
        return msgspec.structs.replace(self, sigma=self.sigma * factor, logit_sigma=self.logit_sigma * factor)

    @property
    def is_summed(self) -> bool:
        """Whether volunteers send sums of gradients: a gradient that took more than losses can't be replayed."""
        return self.space == "activations" or self.head == "closed-form"
