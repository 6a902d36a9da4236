"""Lion: steps of one size for all parameters, along the sign of a mean of their gradients.

Source: Chen et al., "Symbolic Discovery of Optimization Algorithms", arXiv 2302.06675.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, final

import numpy as np
from msgspec import Meta

from fedlearn.es.layout import Float32Array
from fedlearn.es.optimizers.arithmetic import elementwise
from fedlearn.es.optimizers.optimizer import Optimizer, TensorStep
from fedlearn.es.sums.estimate import Int32Array


@final
class Lion(Optimizer, frozen=True, array_like=True, tag="lion"):
    """The optimizer Lion, which steps by the sign of momentum and newest gradient, and keeps one array to Adam's
    two."""

    rate_to_adam: ClassVar[float] = 0.3

    beta1: Annotated[float, Meta(description="share of the momentum in the direction", ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Meta(description="decay rate of the momentum", ge=0, lt=1)] = 0.99

    @property
    def slots(self) -> tuple[str, ...]:
        return ("momentum",)

    @elementwise
    def step(
        self, weights: Float32Array, slots: Mapping[str, Float32Array], estimate: Int32Array, by: TensorStep
    ) -> None:
        m = slots["momentum"]
        gradient = estimate.astype(np.float32) * np.float32(by.gradient_scale)
        mixed = np.float32(self.beta1) * m + np.float32(1.0 - self.beta1) * gradient
        # Comparisons: NumPy's sign of NaN and of -0.0 may differ between versions.
        direction = (mixed > 0.0).astype(np.float32) - (mixed < 0.0)
        m[:] = np.float32(self.beta2) * m + np.float32(1.0 - self.beta2) * gradient
        weights[:] = np.float32(1.0 - by.decay) * weights - np.float32(self.learning_rate * by.scale) * direction
