"""The share of the losses' variance that control variates left in a step, as its volunteers report it.

It is the median, weighted by members, which volunteers with fewer than half of the members cannot move far.
"""

import math
from collections.abc import Iterable

import msgspec

MOST = 1e6
"""The greatest share that counts as a report."""


class VarianceLeft(msgspec.Struct, frozen=True):
    """The report of one Result."""

    share: float
    """Share of the variance; infinite where the Result reports none."""
    n_members: int


def variance_said(share: float | None, n_members: int) -> VarianceLeft:
    """The report of a Result of so many members; a share that cannot be true counts as none, and costs its sender
    nothing."""
    return VarianceLeft(share if share is not None and 0.0 <= share <= MOST else math.inf, n_members)


def typical_variance(said: Iterable[VarianceLeft]) -> float | None:
    """The share that half of the members are at or below; None where fewer members report one."""
    ordered = sorted(said, key=lambda one: one.share)
    left = sum(one.n_members for one in ordered) / 2
    for one in ordered:
        left -= one.n_members
        if left <= 0:
            return one.share if math.isfinite(one.share) else None
    return None
