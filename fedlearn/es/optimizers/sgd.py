"""Gradient descent, with or without momentum."""

from collections.abc import Mapping
from typing import Self, final

import msgspec
import numpy as np

import es_core
from fedlearn.es.layout import Float32Array
from fedlearn.es.optimizers.optimizer import Numbers
from fedlearn.es.sums.estimate import Int32Array


@final
class Sgd(msgspec.Struct, frozen=True, array_like=True, tag="sgd"):
    """Steps along the gradient; without momentum it has no slots, which suits a model that barely fits into memory."""

    learning_rate: float
    momentum: float = 0.0

    @classmethod
    def configured(cls, *, learning_rate: float, beta1: float, beta2: float) -> Self:  # noqa: ARG003 (it has none)
        return cls(learning_rate, momentum=beta1)

    @property
    def slots(self) -> tuple[str, ...]:
        return ("momentum_buffer",) if self.momentum > 0.0 else ()

    def advanced(self, numbers: Numbers) -> dict[str, float]:
        return dict(numbers)

    def step(
        self,
        weights: Float32Array,
        slots: Mapping[str, Float32Array],
        estimate: Int32Array,
        *,
        numbers: Numbers,  # noqa: ARG002 (it has none)
        gradient_scale: float,
        scale: float,
        decay: float,
    ) -> None:
        es_core.sgd_step(
            weights,
            slots["momentum_buffer"] if self.momentum > 0.0 else np.zeros_like(weights),
            estimate,
            gradient_scale=gradient_scale,
            learning_rate=self.learning_rate * scale,
            momentum=self.momentum,
            decay=decay,
        )
