"""Decides whether a run still learns, has diverged, or has never had a finite loss.

It is judged by the median of a step's losses, which false losses cannot move far while they are fewer than the others.
"""

import math
from typing import final

import numpy as np

from fedlearn.es.layout import Float32Array

PATIENCE = 20
"""Steps in a row that must be far worse than the beginning before the run counts as diverged."""

SPREADS = 20.0
"""Spreads of the first losses: a loss that has risen by this many and has doubled is no accident."""

DIVERGED = "the run diverged"
"""The beginning of the reason why a diverged run ends."""

NO_LOSS = "no loss is finite"
"""The beginning of the reason why a run ends that never had a finite loss."""

LOST_STEPS = 3
"""Steps without a finite loss at the beginning of a run after which it ends: it learns nothing, so later steps are
alike."""

_ENOUGH = 4096
"""Number of losses whose median is taken."""


@final
class DivergenceWatch:
    """Watches the losses of an attempt's steps, as one process sees them."""

    def __init__(self) -> None:
        self._begun: tuple[float, float] | None = None
        """Median and spread of the first step in which members differ: one step that is too large may spoil the
        second."""
        self._n_bad = 0
        self._n_lost = 0
        """Steps without a finite loss, before the first one with."""
        self._has_loss = False

    @property
    def lost(self) -> str:
        """Why nothing was learned, if no step had a finite loss; else empty."""
        if self._has_loss or not self._n_lost:
            return ""
        return f"{NO_LOSS} in the first {self._n_lost} step{'s' * (self._n_lost > 1)}"

    @property
    def is_alarmed(self) -> bool:
        """Whether the last step looked like divergence, by its own losses or by false ones."""
        return self._n_bad > 0

    def took(self, losses: Float32Array) -> str:
        """Takes the losses of a step; gives the reason why the run should end, empty as long as it should not."""
        self._has_loss = self._has_loss or bool(np.isfinite(losses).any())
        if not self._has_loss:
            self._n_lost += 1
            return self.lost if self._n_lost >= LOST_STEPS else ""
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
