"""When a search is at its end: further steps would find nothing."""

import math
from collections import deque
from typing import final

import numpy as np
from numpy.typing import NDArray

LEAST_LENGTH = 1e-11
"""Share of the first deviations below which the members' deviations count as nothing."""

MOST_LENGTH = 1e16
"""Share of the first deviations beyond which the members' deviations count as endless."""


@final
class Ending:
    """What a search of n numbers with so many members has seen of its losses."""

    def __init__(self, n: int, population: int) -> None:
        self._best: deque[float] = deque(maxlen=10 + math.ceil(30 * n / population))
        self._range = np.inf

    def took(self, losses: NDArray[np.float64]) -> None:
        """Takes the losses of a step's members, [population]."""
        least = float(losses.min())
        self._range = float(losses.max()) - least
        self._best.append(least)

    def why_flat(self, tol: float, *, comes_together: bool = True) -> str:
        """The reason, if the losses of some steps, and of the last one's members, differ by no more than `tol`; else an
        empty text. Members that never come together are not asked."""
        best = self._best
        if len(best) == best.maxlen:
            least, most = min(best), max(best)
            tol += 1e-15 * max(-least, most)
            if max(self._range if comes_together else 0.0, most - least) <= tol:
                return f"the losses of {len(best)} steps differ by no more than {tol:.3g}"
        return ""

    def why_size(self, size: float) -> str:
        """The reason, if the members' size, as a share of the first one, counts as nothing or as endless."""
        if size < LEAST_LENGTH:
            return f"members lie within {LEAST_LENGTH:g} of the first deviations"
        return "" if size < MOST_LENGTH else "the members' deviations grew without bound"
