"""Clips sums of gradients by the length that such sums usually have.

A sum over g groups is mostly noise, whose length grows with the square root of g; a sum of gradients without noise
grows with g, and counts in a unit of its own step. A sum that is longer than `MOST`
times the median of the latest ones is scaled down to that length, and so is the total of a step. A single false sum of
the greatest numbers would otherwise stay in Adam's second moment for thousands of steps.

Sources: clipping by a multiple of the median norm, as in Pillutla et al., "Robust Aggregation for Federated Learning",
arXiv 1912.13445, and centred clipping, Karimireddy et al., arXiv 2012.10333.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from fedlearn.es.sums.norm import PIECE, l2_norm

Int64Array = NDArray[np.int64]

MOST = 4.0
"""The greatest length of a sum, in multiples of the median length."""

MEMORY = 64
"""Number of the latest lengths whose median is taken."""


@final
class Clipping:
    """Clips the sums of a run; `n_clipped` of them were scaled down."""

    def __init__(self) -> None:
        self._parts = _Usual()
        self._totals = _Usual()
        self.n_clipped = 0

    @property
    def knows_lengths(self) -> bool:
        """Whether there was a sum that is no zero."""
        return self._parts.knows_lengths

    def begin(self, length: float) -> None:
        """Goes on after a total of this length, as a share of the usual one."""
        for usual in (self._parts, self._totals):
            usual.limit([length])

    def total(
        self, sums: Sequence[tuple[Int64Array, int]], size: int, usual: Callable[[int], float] = math.sqrt
    ) -> Int64Array:
        """The total, int64 [size], of sums that each come with their number of groups.

        `usual` tells how the length of a sum grows with that number.
        """
        lengths = [_length(numbers, usual(n_groups)) for numbers, n_groups in sums]
        limit = self._parts.limit(lengths)
        if len(sums) == 1 and lengths[0] <= limit:
            (total, _), length = sums[0], lengths[0]  # measured already
        else:
            total = np.zeros(size, dtype=np.int64)
            for (numbers, _), own in zip(sums, lengths, strict=True):
                total += self._scaled(numbers, own, limit)
            length = _length(total, usual(sum(n_groups for _, n_groups in sums)))
        return self._scaled(total, length, self._totals.limit([length]))

    def _scaled(self, numbers: Int64Array, length: float, limit: float) -> Int64Array:
        if length <= limit:
            return numbers
        self.n_clipped += 1
        factor, scaled = limit / length, np.empty_like(numbers)
        for begin in range(0, numbers.size, PIECE):
            piece = slice(begin, begin + PIECE)
            scaled[piece] = np.rint(numbers[piece] * factor)
        return scaled


@final
class _Usual:
    """The latest lengths of sums, and the limit that follows from them."""

    def __init__(self) -> None:
        self._lengths: deque[float] = deque(maxlen=MEMORY)

    @property
    def knows_lengths(self) -> bool:
        return len(self._lengths) > 0

    def limit(self, lengths: Sequence[float]) -> float:
        """The greatest length allowed after these lengths, which are added to the latest ones."""
        known: list[float] = sorted([*self._lengths, *(length for length in lengths if length > 0.0)])
        # The lower of two middle values: of two sums without a past, the shorter one is believed.
        limit = MOST * known[(len(known) - 1) // 2] if known else 0.0
        self._lengths.extend(min(length, limit) for length in lengths if length > 0.0)
        return limit


def _length(numbers: Int64Array, usual: float) -> float:
    """The length as a share of the usual one."""
    return l2_norm(numbers) / (usual or 1.0)
