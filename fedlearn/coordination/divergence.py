"""Whether a run still learns or has diverged.

It is judged by the median of a step's losses, which false losses cannot move far while they are fewer than the others.
"""

import math
from typing import final

import numpy as np

from fedlearn.es.layout import Float32Array

PATIENCE = 20
"""Steps in a row that must be far worse than the beginning before the run counts as diverged."""

SPREADS = 20.0
"""Standard deviations of the first losses: a loss that has grown by that much, and has doubled, is no bad luck."""

DIVERGED = "the run diverged"
"""The beginning of the reason."""

_ENOUGH = 4096
"""Losses whose median is taken."""


@final
class DivergenceWatch:
    """Watches the losses of a run's steps, as one process sees them."""

    def __init__(self) -> None:
        self._begun: tuple[float, float] | None = None
        """Median and spread of the first step in which members differ: one step that is too large may spoil the
        second."""
        self._n_bad = 0

    def took(self, losses: Float32Array) -> str:
        """Why the run should not go on after a step with these losses; empty as long as it may."""
        median, spread = _typical(losses)
        if self._begun is None:
            self._begun = (median, spread) if spread > 0.0 else None
            return ""
        first, first_spread = self._begun
        most = first + max(abs(first), SPREADS * first_spread)
        self._n_bad = self._n_bad + 1 if median > most else 0
        if self._n_bad < PATIENCE:
            return ""
        return (
            f"{DIVERGED}: its loss was {first:.3g} at the beginning, and {median:.3g} now, in {PATIENCE} steps "
            f"above {most:.3g}; go on from an earlier step with a lower learning_rate"
        )


def _typical(losses: Float32Array) -> tuple[float, float]:
    """The median, infinite where most losses are infinite, and the standard deviation of the finite ones."""
    some = losses[:: max(losses.size // _ENOUGH, 1)].astype(np.float64)
    finite = some[np.isfinite(some)]
    if not finite.size:
        return math.inf, 0.0
    # The lower of two middle values; `np.quantile` takes several times as long to find the same.
    middle = (some.size - 1) // 2
    ordered = np.partition(np.where(np.isfinite(some), some, np.inf), middle)
    return float(ordered[middle]), float(finite.std())
