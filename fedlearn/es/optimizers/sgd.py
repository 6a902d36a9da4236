"""Gradient descent, with or without momentum."""

from collections.abc import Mapping
from typing import Annotated, final

import msgspec
import numpy as np
from msgspec import Meta

import es_core
from fedlearn.es.layout import Float32Array
from fedlearn.es.optimizers.arithmetic import elementwise
from fedlearn.es.optimizers.optimizer import Optimizer, TensorStep
from fedlearn.es.sums.estimate import Int32Array


@final
class Sgd(Optimizer, frozen=True, array_like=True, tag="sgd"):
    """Gradient descent, which without momentum has no slots and so suits a model that barely fits into memory."""

    momentum: Annotated[float, Meta(description="momentum", ge=0, lt=1)] = msgspec.field(default=0.9, name="beta1")

    @property
    def slots(self) -> tuple[str, ...]:
        return ("momentum_buffer",) if self.momentum > 0.0 else ()

    def step(
        self, weights: Float32Array, slots: Mapping[str, Float32Array], estimate: Int32Array, by: TensorStep
    ) -> None:
        if self.momentum > 0.0:
            self._kernel_step(weights, slots, estimate, by)
        else:
            self._step_in_blocks(weights, slots, estimate, by)

    @elementwise
    def _step_in_blocks(
        self, weights: Float32Array, slots: Mapping[str, Float32Array], estimate: Int32Array, by: TensorStep
    ) -> None:
        """The step without momentum: a buffer of zeros as long as the weights would take longer than the arithmetic."""
        self._kernel_step(weights, slots, estimate, by)

    def _kernel_step(
        self, weights: Float32Array, slots: Mapping[str, Float32Array], estimate: Int32Array, by: TensorStep
    ) -> None:
        es_core.sgd_step(
            weights,
            self._buffer(weights, slots),
            estimate,
            gradient_scale=by.gradient_scale,
            learning_rate=self.learning_rate * by.scale,
            momentum=self.momentum,
            decay=by.decay,
        )

    @elementwise
    def plain_step(
        self, weights: Float32Array, slots: Mapping[str, Float32Array], estimate: Int32Array, by: TensorStep
    ) -> None:
        """The step in NumPy, to the same bits."""
        velocity = self._buffer(weights, slots)
        gradient = estimate.astype(np.float32) * np.float32(by.gradient_scale)
        velocity[:] = np.float32(self.momentum) * velocity + gradient
        weights[:] = np.float32(1.0 - by.decay) * weights - np.float32(self.learning_rate * by.scale) * velocity

    def _buffer(self, weights: Float32Array, slots: Mapping[str, Float32Array]) -> Float32Array:
        return slots["momentum_buffer"] if self.momentum > 0.0 else np.zeros_like(weights)
