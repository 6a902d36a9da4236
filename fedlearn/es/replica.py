"""The replica: weights and optimizer state that every machine holds, equal to the bit.

`apply` is the only way a step changes weights, on the server and on every client; all it reads is the Update, the
run's seed, and the row masks that follow from the token block named in it.
"""

import math
from collections.abc import Callable
from hashlib import blake2b
from typing import final

import msgspec
import numpy as np
from numpy.typing import NDArray

import es_core
from fedlearn.es.estimate import Int32Array, decode_estimate
from fedlearn.es.layout import ParameterLayout
from fedlearn.es.update import Update

Float32Array = NDArray[np.float32]
UInt8Array = NDArray[np.uint8]
RowMasks = Callable[[Update], UInt8Array | None]
"""Gives [groups, columns]: which rows of masked tensors could change the loss of each group of an Update."""

DIGEST_BYTES = 8
SMALLEST_POWER = 2.0**-1000
"""Below it 1 - power is 1 exactly; powers stop here, since subnormal numbers depend on the process's flush-to-zero."""


class OptimizerState(msgspec.Struct):
    """Adam's memory: moments like the weights, and the running products beta1**t and beta2**t.

    SGD keeps its momentum buffer as the first moment and leaves the second at zero.
    """

    first_moment: Float32Array
    second_moment: Float32Array
    beta1_power: float = 1.0
    beta2_power: float = 1.0


@final
class Replica:
    """Weights [n_parameters] before step `step`, with the optimizer's state."""

    def __init__(
        self,
        layout: ParameterLayout,
        *,
        seed: int,
        step: int,
        weights: Float32Array,
        optimizer: OptimizerState,
        row_masks: RowMasks,
    ) -> None:
        for name, array in (
            ("weights", weights),
            ("first_moment", optimizer.first_moment),
            ("second_moment", optimizer.second_moment),
        ):
            if array.shape != (layout.size,) or array.dtype != np.float32:
                raise ValueError(
                    f"{name}: expected float32 [{layout.size}], got {array.dtype} {list(array.shape)}; "
                    "was the checkpoint made for another model?"
                )
        self.layout = layout
        self.seed = seed
        self.step = step
        self.weights = weights.copy()
        self.optimizer = OptimizerState(
            optimizer.first_moment.copy(),
            optimizer.second_moment.copy(),
            optimizer.beta1_power,
            optimizer.beta2_power,
        )
        self._row_masks = row_masks

    @property
    def digest(self) -> bytes:
        """8 bytes of BLAKE2b over weights and optimizer state, little-endian float32 and float64."""
        state = self.optimizer
        powers = np.array([state.beta1_power, state.beta2_power])
        digest = blake2b(digest_size=DIGEST_BYTES)
        for array in (self.weights, state.first_moment, state.second_moment, powers):
            digest.update(array.astype(array.dtype.newbyteorder("<"), copy=False).data)
        return digest.digest()

    def apply(self, update: Update, *, threads: int = 0) -> None:
        """Takes one step. An Update without members moves the optimizer's memory on, like any other.

        Raises ValueError when the Update is of another step or another model.
        """
        if update.step != self.step:
            raise ValueError(f"step: expected {self.step}, got {update.step}; the replica must resync")
        is_summed = update.is_summed
        estimate = decode_estimate(self.layout, update.estimate) if is_summed else self._replayed(update, threads)
        state = self.optimizer
        state.beta1_power = max(state.beta1_power * update.beta1, SMALLEST_POWER)
        state.beta2_power = max(state.beta2_power * update.beta2, SMALLEST_POWER)
        for tensor, offset in zip(self.layout.tensors, self.layout.offsets, strict=True):
            interval = slice(offset, offset + tensor.size)
            rank = update.rank if tensor.is_matrix and not is_summed else 0
            gradient_scale = update.gradient_scale / math.sqrt(max(rank, 1))
            learning_rate = update.learning_rate * tensor.scale
            decay = update.learning_rate * update.weight_decay if tensor.is_matrix else 0.0
            if update.optimizer == "adam":
                es_core.adam_step(
                    self.weights[interval],
                    state.first_moment[interval],
                    state.second_moment[interval],
                    estimate[interval],
                    gradient_scale=gradient_scale,
                    learning_rate=learning_rate,
                    beta1=update.beta1,
                    beta2=update.beta2,
                    epsilon=update.epsilon,
                    correction1=1.0 / (1.0 - state.beta1_power),
                    correction2=1.0 / (1.0 - state.beta2_power),
                    decay=decay,
                )
            else:
                es_core.sgd_step(
                    self.weights[interval],
                    state.first_moment[interval],
                    estimate[interval],
                    gradient_scale=gradient_scale,
                    learning_rate=learning_rate,
                    momentum=update.beta1,
                    decay=decay,
                )
        self.step += 1

    def _replayed(self, update: Update, threads: int) -> Int32Array:
        """The gradient estimate from the utilities, with everybody's noise regenerated."""
        if not update.spans:
            return np.zeros(self.layout.size, dtype=np.int32)
        return es_core.estimate_gradient(
            self.layout.table(update.rank),
            self.layout.size,
            seed=self.seed,
            step=update.step,
            group_size=update.group_size,
            spans=list(update.spans),
            utilities=update.utilities,
            row_masks=self._row_masks(update),
            antithetic=update.antithetic,
            threads=threads,
        )
