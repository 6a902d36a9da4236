"""Adam: steps of about the same size for all parameters, whatever the size of their gradients.

Sources: Kingma and Ba, "Adam: A Method for Stochastic Optimization", arXiv 1412.6980; weight decay: decoupled, as in
AdamW, Loshchilov and Hutter, arXiv 1711.05101.
"""

from collections.abc import Mapping
from typing import Annotated, final

import numpy as np
from msgspec import Meta

import es_core
from fedlearn.es.layout import Float32Array
from fedlearn.es.optimizers.arithmetic import elementwise
from fedlearn.es.optimizers.optimizer import Numbers, Optimizer, TensorStep
from fedlearn.es.sums.estimate import Int32Array

SMALLEST_POWER = 2.0**-1000
"""The least power of a beta; below it `1 - power` is exactly 1, and a process may flush subnormal numbers to zero."""


@final
class Adam(Optimizer, frozen=True, array_like=True, tag="adam"):
    """The optimizer Adam, with running means of the gradient and of its square, both with bias correction."""

    beta1: Annotated[float, Meta(description="decay rate of the first moment", ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Meta(description="decay rate of the second moment", ge=0, lt=1)] = 0.999
    epsilon: float = 1e-8

    @property
    def slots(self) -> tuple[str, ...]:
        return ("first_moment", "second_moment")

    def advanced(self, numbers: Numbers) -> dict[str, float]:
        return {
            "beta1_power": max(numbers.get("beta1_power", 1.0) * self.beta1, SMALLEST_POWER),
            "beta2_power": max(numbers.get("beta2_power", 1.0) * self.beta2, SMALLEST_POWER),
        }

    def step(
        self, weights: Float32Array, slots: Mapping[str, Float32Array], estimate: Int32Array, by: TensorStep
    ) -> None:
        correction1, correction2 = _corrections(by.numbers)
        es_core.adam_step(
            weights,
            slots["first_moment"],
            slots["second_moment"],
            estimate,
            gradient_scale=by.gradient_scale,
            learning_rate=self.learning_rate * by.scale,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
            correction1=correction1,
            correction2=correction2,
            decay=by.decay,
        )

    @elementwise
    def plain_step(
        self, weights: Float32Array, slots: Mapping[str, Float32Array], estimate: Int32Array, by: TensorStep
    ) -> None:
        """The step in NumPy, to the same bits."""
        m, v = slots["first_moment"], slots["second_moment"]
        correction1, correction2 = map(np.float32, _corrections(by.numbers))
        gradient = estimate.astype(np.float32) * np.float32(by.gradient_scale)
        m[:] = np.float32(self.beta1) * m + np.float32(1.0 - self.beta1) * gradient
        v[:] = np.float32(self.beta2) * v + np.float32(1.0 - self.beta2) * (gradient * gradient)
        moved = np.float32(self.learning_rate * by.scale) * (m * correction1)
        weights[:] = np.float32(1.0 - by.decay) * weights - moved / (
            np.sqrt(v * correction2) + np.float32(self.epsilon)
        )


def _corrections(numbers: Numbers) -> tuple[float, float]:
    return 1.0 / (1.0 - numbers["beta1_power"]), 1.0 / (1.0 - numbers["beta2_power"])
