"""The loss of a step as people see it: the mean of its middle groups, which a few false ones do not move."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array

LEFT_OUT = 4
"""One group in this many is left out at the top, and one at the bottom: one each of three, none of fewer."""


def group_means(losses: Float32Array, group_size: int) -> NDArray[np.float64]:
    """The mean of the finite losses of each group [groups with any]."""
    groups = losses.reshape(-1, group_size)
    is_finite = np.isfinite(groups)
    counts = is_finite.sum(axis=1)
    sums = np.where(is_finite, groups, 0.0).sum(axis=1, dtype=np.float64)
    means: NDArray[np.float64] = sums[counts > 0] / counts[counts > 0]
    return means


def middle_mean(means: NDArray[np.float64] | Sequence[float]) -> float | None:
    """The mean of the middle half of group means; None of an empty list."""
    ordered = np.sort(np.asarray(means, dtype=np.float64))
    if not ordered.size:
        return None
    left_out = max(ordered.size // LEFT_OUT, 1) if ordered.size > 2 else 0
    return float(ordered[left_out : ordered.size - left_out].mean())
