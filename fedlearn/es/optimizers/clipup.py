"""ClipUp: steps along a momentum of gradients of one length, and never longer than a maximum speed.

Source: Toklu, Liskowski and Srivastava, "ClipUp: A Simple and Powerful Optimizer for Distribution-based Policy
Evolution", arXiv 2008.02387.

Lengths are those of all weights together, so they come from sums of squares of integers, the same in whatever order a
machine adds them.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, final

import msgspec
import numpy as np
from msgspec import Meta

from fedlearn.es.layout import Float32Array
from fedlearn.es.optimizers.arithmetic import BLOCK, elementwise
from fedlearn.es.optimizers.optimizer import GradientPart, Optimizer, TensorStep
from fedlearn.es.sums.estimate import Int32Array

PUSH = 0.5
"""The length of the gradient as a share of the maximum speed, as in the paper."""

FINENESS = 2**14
"""Velocities are rounded to multiples of one over this for their length; those of 7 thousand million weights fit 32
bits."""


@final
class ClipUp(Optimizer, frozen=True, array_like=True, tag="clipup"):
    """The optimizer ClipUp. The learning rate is the maximum speed: the most that the weights move in a step, as the
    root of the mean square of their moves."""

    gathers: ClassVar[bool] = True

    momentum: Annotated[float, Meta(description="share of the velocity that a step keeps", ge=0, lt=1)] = msgspec.field(
        default=0.9, name="beta1"
    )

    @property
    def slots(self) -> tuple[str, ...]:
        return ("velocity",)

    def gather(self, pieces: Sequence[GradientPart]) -> None:
        """Adds the gradient of all pieces to their velocities, and shortens these to the maximum speed.

        The slots hold velocities as multiples of the maximum speed.
        """
        n = sum(piece.estimate.size for piece in pieces)
        shares = _relative([piece.gradient_scale for piece in pieces])
        squares = dict.fromkeys(shares, 0)
        for piece, share in zip(pieces, shares, strict=True):
            squares[share] += _sum_of_squares(piece.estimate)
        square = 0.0  # added one by one: some versions of Python make `sum` more exact
        for share, whole in squares.items():
            square += share * share * float(whole)
        push = PUSH * math.sqrt(n / square) if square > 0.0 else 0.0
        moved = 0
        for piece, share in zip(pieces, shares, strict=True):
            velocity = piece.slots["velocity"]
            for block in _blocks(velocity.size):
                gradient = piece.estimate[block].astype(np.float32) * np.float32(share * push)
                velocity[block] = np.float32(self.momentum) * velocity[block] + gradient
                moved += _sum_of_squares(np.rint(velocity[block] * np.float32(FINENESS)).astype(np.int32))
        most = n * FINENESS**2
        if moved > most:
            shorter = np.float32(math.sqrt(most / moved))
            for piece in pieces:
                piece.slots["velocity"][:] *= shorter

    @elementwise
    def step(
        self,
        weights: Float32Array,
        slots: Mapping[str, Float32Array],
        estimate: Int32Array,  # noqa: ARG002 (gathered before)
        by: TensorStep,
    ) -> None:
        """Moves the weights by the velocities that `gather` left."""
        rate = np.float32(self.learning_rate * by.scale)
        weights[:] = np.float32(1.0 - by.decay) * weights - rate * slots["velocity"]


def _relative(scales: Sequence[float]) -> list[float]:
    """The scales as multiples of the largest one, whose squares are then in range; zeros if there is no finite one."""
    largest = max(map(abs, scales), default=0.0)
    return [scale / largest if 0.0 < largest < math.inf else 0.0 for scale in scales]


def _sum_of_squares(numbers: Int32Array) -> int:
    """The sum of squares, exact: by halves of 16 bits, so that no sum of a block is beyond 64."""
    total = 0
    for block in _blocks(numbers.size):
        piece = numbers[block].astype(np.int64)
        high, low = piece >> 16, piece & 0xFFFF
        total += (int((high * high).sum()) << 32) + (int((high * low).sum()) << 17) + int((low * low).sum())
    return total


def _blocks(n: int) -> Iterator[slice]:
    return (slice(first, first + BLOCK) for first in range(0, n, BLOCK))
