"""A large model without its forward pass: a transformer's tensors, and the work of a step that grows with them."""

from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import final

import msgspec
import numpy as np

import es_core
from fedlearn.es.digest import tensor_digests
from fedlearn.es.layout import Float32Array, ParameterLayout, TensorSpec
from fedlearn.es.noise import member_noise
from fedlearn.es.optimizers import Adam, AnyOptimizer, Sgd
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.replica import Replica, genesis
from fedlearn.es.trials import Trials
from fedlearn.es.update import Update

LEARNING_RATE = 1e-9
OPTIMIZERS: dict[str, AnyOptimizer] = {"adam": Adam(LEARNING_RATE), "sgd": Sgd(LEARNING_RATE)}

GROUP_SIZE = 16
SEED = 1


class Shape(msgspec.Struct, frozen=True):
    """Of a decoder."""

    vocabulary: int
    width: int
    blocks: int

    def layout(self) -> ParameterLayout:
        """Its tensors; the head is the embedding."""
        width = self.width
        tensors = [TensorSpec("embedding", (self.vocabulary, width))]
        sides = {"qkv": (3 * width, width), "out": (width, width), "up": (4 * width, width), "down": (width, 4 * width)}
        for block in range(self.blocks):
            tensors += [TensorSpec(f"{block}.{name}", shape) for name, shape in sides.items()]
            tensors += [TensorSpec(f"{block}.{name}", (width,)) for name in ("norm1", "norm2")]
        return ParameterLayout(tuple(tensors))


@final
class LargeModel:
    """A replica with an optimizer, and the parts of a step; all of them use so many threads."""

    def __init__(self, layout: ParameterLayout, optimizer: str, *, threads: int) -> None:
        self.layout, self._threads = layout, threads
        self._optimizer = OPTIMIZERS[optimizer]
        weights = np.random.default_rng(SEED).standard_normal(layout.size, dtype=np.float32)
        snapshot = genesis(layout, weights, threads=threads)
        self.replica = Replica(layout, snapshot, seed=SEED, row_masks=lambda _: None, threads=threads)
        self.step(0)  # the optimizer makes its slots

    def genesis(self) -> object:
        """What a run begins with, given its weights."""
        return genesis(self.layout, self.replica.weights, threads=self._threads)

    def step(self, members: int) -> None:
        """Takes a step of so many members; the weights hardly move."""
        self.replica.apply(self._update(members))

    def estimate(self, members: int) -> object:
        """The gradient estimate of a step, alone."""
        update = self._update(members)
        return es_core.estimate_gradient(
            self.layout.table(update.rank),
            self.layout.size,
            seed=SEED,
            step=update.step,
            group_size=update.group_size,
            spans=list(update.spans),
            utilities=update.utilities,
            row_masks=None,
            threads=self._threads,
        )

    def digest(self) -> object:
        """BLAKE3, a digest a tensor."""
        return tensor_digests(self.layout, self.replica.weights, self.replica.slots, threads=self._threads)

    def blake2b(self) -> bytes:
        """BLAKE2b over the same arrays, one after the other: what digests were until protocol 3."""
        digest = blake2b(digest_size=8)
        for array in (self.replica.weights, *self.replica.slots.values()):
            digest.update(array.data)
        return digest.digest()

    def noise(self, members: int) -> object:
        """Of all members, as trials in Python are given it."""
        trials = Trials(self.replica.step, Perturbation(sigma=0.01, rank=1), GROUP_SIZE, 0, members)
        return member_noise(self.layout, trials, seed=SEED, threads=self._threads)

    def _update(self, members: int) -> Update:
        """Of the step that is due: one span of members with noise of rank 1."""
        return Update(
            step=self.replica.step,
            block=b"",
            spans=((0, members),) if members else (),
            utilities=np.resize(np.arange(-64, 65, dtype=np.int8), members),
            rank=1,
            group_size=GROUP_SIZE,
            gradient_scale=1e-6,
            optimizer=self._optimizer,
            antithetic=False,
            weight_decay=0.0,
            decay_towards="zero",
            elapsed_s=0.0,
            shaping_scale=1.0,
        )


def noise_numbers(layout: ParameterLayout) -> int:
    """Of one member at rank 1: rows and columns of matrices, and all of every vector."""
    return sum(sum(tensor.sides) if tensor.is_matrix else tensor.size for tensor in layout.tensors)


def one_pass(weights: Float32Array) -> Callable[[], object]:
    """A copy of the weights: reads them once, and writes as many bytes."""
    return partial(np.copyto, np.zeros_like(weights), weights)
