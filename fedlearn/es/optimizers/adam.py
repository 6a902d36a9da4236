"""Adam: steps of about the same size for all parameters, whatever the size of their gradients.

Sources: Kingma and Ba, "Adam: A Method for Stochastic Optimization", arXiv 1412.6980; weight decay: decoupled, as in
AdamW, Loshchilov and Hutter, arXiv 1711.05101.
"""

from collections.abc import Mapping
from typing import Self, final

import msgspec

import es_core
from fedlearn.es.layout import Float32Array
from fedlearn.es.optimizers.optimizer import Numbers
from fedlearn.es.sums.estimate import Int32Array

SMALLEST_POWER = 2.0**-1000
"""Below it `1 - power` is exactly 1; powers stop here, since a process may flush subnormal numbers to zero."""


@final
class Adam(msgspec.Struct, frozen=True, array_like=True, tag="adam"):
    """Running means of the gradient and of its square, both with bias correction."""

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    @classmethod
    def configured(cls, *, learning_rate: float, beta1: float, beta2: float) -> Self:
        return cls(learning_rate, beta1, beta2)

    @property
    def slots(self) -> tuple[str, ...]:
        return ("first_moment", "second_moment")

    def advanced(self, numbers: Numbers) -> dict[str, float]:
        return {
            "beta1_power": max(numbers.get("beta1_power", 1.0) * self.beta1, SMALLEST_POWER),
            "beta2_power": max(numbers.get("beta2_power", 1.0) * self.beta2, SMALLEST_POWER),
        }

    def step(
        self,
        weights: Float32Array,
        slots: Mapping[str, Float32Array],
        estimate: Int32Array,
        *,
        numbers: Numbers,
        gradient_scale: float,
        scale: float,
        decay: float,
    ) -> None:
        es_core.adam_step(
            weights,
            slots["first_moment"],
            slots["second_moment"],
            estimate,
            gradient_scale=gradient_scale,
            learning_rate=self.learning_rate * scale,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
            correction1=1.0 / (1.0 - numbers["beta1_power"]),
            correction2=1.0 / (1.0 - numbers["beta2_power"]),
            decay=decay,
        )
