"""The members of a step where losses have noise of their own: few at first, which make many steps, and more later.

Few members bring a search as near as their noise lets them; from there on more of them bring it nearer.
"""

import math

MOST_GROUPS = 64
"""The factor by which a step has more members in the end than one of exact losses."""

EVALUATIONS_PER_GROUP = 8
"""Evaluations for each number that is searched after which a step has as many members more as it had at first."""


def groups_after(n_evaluations: int, n: int) -> int:
    """The groups of a step after so many evaluations of a function of n numbers."""
    return min(1 + n_evaluations // (EVALUATIONS_PER_GROUP * n), MOST_GROUPS)


def warmup_steps(n: int, group_size: int) -> int:
    """The steps after which there are `MOST_GROUPS`, if each step before has the same share more."""
    return round(math.log(MOST_GROUPS) * EVALUATIONS_PER_GROUP * n / group_size)
