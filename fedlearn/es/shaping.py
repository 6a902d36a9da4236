"""Fitness shaping: the losses of a group become small integers, the utilities, by comparison within the group.

A higher utility stands for a lower loss. In a group with a loss that is not finite all utilities are zero. The same
losses give the same utilities on every machine: sums, differences, quotients, roots and rounding follow IEEE 754.
"""

import math
from collections.abc import Callable, Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

import es_core
from fedlearn.es.sums.estimate import MAX_UTILITY, Int8Array

Float32Array = NDArray[np.float32]

MAX_LOSS = 1e12
"""The largest loss of either sign; larger ones count as infinite, since float32 could not hold their gradient."""

UTILITY_RESOLUTION = 32
"""The utility of a loss one `scale` better than its group's mean; clipping begins four standard deviations out."""


def normalized(losses: Float32Array, group_size: int, scale: float) -> Int8Array:
    """Utilities, int8 [n]: `round(UTILITY_RESOLUTION * (group mean - loss) / scale)`, clipped to -127 to 127."""
    return es_core.normalized_utilities(losses, group_size, scale, UTILITY_RESOLUTION)


def centered_ranks(losses: Float32Array, group_size: int, scale: float) -> Int8Array:
    """Utilities, int8 [n], evenly spaced by rank from the group's worst to its best; equal losses have the mean of
    their ranks."""
    del scale  # ranks have none
    groups = losses.reshape(-1, group_size)
    first, last = _ranks(groups), np.fliplr(_ranks(np.fliplr(groups)))
    # They have mean 0 and, without equal losses, standard deviation UTILITY_RESOLUTION, like normalized utilities.
    spread = UTILITY_RESOLUTION * math.sqrt(12.0) / group_size
    shaped = np.rint((first + last - (group_size - 1)) * (spread / 2)).astype(np.int8)
    return _without_broken_groups(groups, shaped)


def _ranks(groups: Float32Array) -> NDArray[np.intp]:
    """The ranks within each group, 0 for the highest loss; among equal ones the first member's is the lowest."""
    return np.argsort(np.argsort(-groups, axis=1, kind="stable"), axis=1, kind="stable")


def best_directions(losses: Float32Array, group_size: int, scale: float) -> Int8Array:
    """Centered ranks of the half of a group's antithetic pairs whose better members are best; 0 for the other pairs.

    Source: the directions that are used of Mania, Guy and Recht, "Simple random search of static linear policies is
    competitive for reinforcement learning", 2018.

    Raises:
        ValueError: a group has no pairs.
    """
    if group_size % 2:
        raise ValueError(f"group_size: expected an even number with antithetic pairs, got {group_size}")
    pairs = losses.reshape(-1, group_size // 2, 2)
    is_used = _ranks(pairs.min(axis=2)) >= group_size // 4
    return centered_ranks(losses, group_size, scale) * is_used.ravel().repeat(2)


def sign(losses: Float32Array, group_size: int, scale: float) -> Int8Array:
    """Utilities, int8 [n]: UTILITY_RESOLUTION below the group's median loss, -UTILITY_RESOLUTION above it, 0 on it."""
    del scale
    groups = losses.reshape(-1, group_size)
    with np.errstate(invalid="ignore"):  # infinite losses are zeroed below
        shaped = np.sign(np.median(groups, axis=1, keepdims=True) - groups)
    return _without_broken_groups(groups, np.nan_to_num(shaped * UTILITY_RESOLUTION).astype(np.int8))


def _without_broken_groups(groups: Float32Array, shaped: NDArray[np.int8]) -> Int8Array:
    shaped[~np.isfinite(groups).all(axis=1)] = 0
    return shaped.reshape(-1)


SHAPINGS: Mapping[str, Callable[[Float32Array, int, float], Int8Array]] = {
    "normalized": normalized,
    "centered-ranks": centered_ranks,
    "best-directions": best_directions,
    "sign": sign,
}
"""Shaping rules by the names that configurations use; a new rule is a function and an entry here."""


class Shaping(msgspec.Struct, frozen=True, array_like=True):
    """A rule by which losses become utilities, and its scale."""

    rule: str
    """A key of `SHAPINGS`."""
    scale: float
    """Running standard deviation of losses within groups."""

    def utilities(self, losses: Float32Array, group_size: int) -> Int8Array:
        """The utilities of whole groups, int8 [n].

        Raises:
            ValueError: there is no such rule.
        """
        if self.rule not in SHAPINGS:
            raise ValueError(f"fitness_shaping: expected one of {', '.join(SHAPINGS)}, got {self.rule!r}")
        return SHAPINGS[self.rule](bounded(losses), group_size, self.scale)

    def utilities_of_all(self, losses: Float32Array, group_size: int) -> Int8Array:
        """The utilities of members that are compared with those of all groups, int8 [n].

        A loss that is not finite counts as the worst of the others, and a group of such alone does not count.

        Raises:
            ValueError: there is no such rule.
        """
        utilities = np.zeros(losses.size, dtype=np.int8)
        is_finite = np.isfinite(fine := bounded(losses))
        counts = is_finite.reshape(-1, group_size).any(axis=1).repeat(group_size)
        if counts.any():
            filled = np.where(is_finite, fine, fine[is_finite].max())[counts]
            utilities[counts] = self.utilities(filled, filled.size)
        return utilities


def spread_of(losses: Float32Array, group_size: int) -> float:
    """The typical standard deviation of losses within a group: the median over groups with finite losses, or 0.

    The median keeps a few groups of false or broken losses from moving the scale of everybody's utilities.
    """
    groups = losses.reshape(-1, group_size).astype(np.float64)
    finite = groups[np.isfinite(groups).all(axis=1)]
    return _median(finite.std(axis=1, ddof=1)) if finite.size and group_size > 1 else 0.0


def _median(values: NDArray[np.float64]) -> float:
    """The result of `np.median` for finite values, in a fraction of its time for few values."""
    middle = values.size // 2
    ordered = np.partition(values, middle)
    if values.size % 2:
        return float(ordered[middle])
    return float((ordered[:middle].max() + ordered[middle]) / 2.0)


def bounded(losses: Float32Array) -> Float32Array:
    """The losses, with infinity for NaN and for those beyond MAX_LOSS; the same array where there are none."""
    is_fine = np.abs(losses) <= MAX_LOSS
    return losses if np.count_nonzero(is_fine) == losses.size else np.where(is_fine, losses, np.float32(np.inf))


def n_counted(losses: Float32Array, group_size: int) -> int:
    """Number of members in groups whose losses are all finite; the others count zero."""
    return int(np.isfinite(losses.reshape(-1, group_size)).all(axis=1).sum()) * group_size


assert UTILITY_RESOLUTION * 12**0.5 / 2 <= MAX_UTILITY
