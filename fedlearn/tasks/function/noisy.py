"""The members of a step where losses have noise of their own: few at first, which make many steps, and more later.

Few members bring a search as near as their noise lets them; from there on more of them bring it nearer.
"""

import math
from typing import final

import numpy as np
from numpy.typing import NDArray

MOST_GROUPS = 64
"""The factor by which a step has more members in the end than one of exact losses."""

EVALUATIONS_PER_GROUP = 8
"""Evaluations for each number that is searched after which a step has as many members more as it had at first."""

FELT_NOISE = 0.03
"""The difference of two losses of one member, as a share of the middle half of a step's losses, above which it is felt:
less, such as by rounding on several threads, hardly changes the order of members."""

FELT_STEPS = 5
"""The steps over which the share of those is averaged in which noise was felt: it was before the first one."""


@final
class Widening:
    """How many groups a step of a search has, which is more where noise is felt."""

    def __init__(self, n: int) -> None:
        self._n, self._felt, self._n_groups = n, 1.0, 1

    def took(self, losses: NDArray[np.float64], again: float) -> None:
        """Takes the losses of a step's members, and another loss of the first one."""
        is_felt = False
        if np.isfinite([again, *losses]).all():
            low, high = np.quantile(losses, [0.25, 0.75])
            is_felt = bool(abs(again - losses[0]) > FELT_NOISE * (high - low))
        self._felt += (is_felt - self._felt) / FELT_STEPS

    def groups_after(self, n_evaluations: int) -> int:
        """The groups of the next step after so many evaluations, and never fewer than before."""
        self._n_groups = max(self._n_groups, groups_after(int(self._felt * n_evaluations), self._n))
        return self._n_groups


def groups_after(n_evaluations: int, n: int) -> int:
    """The groups of a step after so many evaluations, in which noise was felt, of a function of n numbers."""
    return min(1 + n_evaluations // (EVALUATIONS_PER_GROUP * n), MOST_GROUPS)


def warmup_steps(n: int, group_size: int) -> int:
    """The steps after which there are `MOST_GROUPS`, if each step before has the same share more."""
    return round(math.log(MOST_GROUPS) * EVALUATIONS_PER_GROUP * n / group_size)
