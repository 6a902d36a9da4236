import math

import pytest

from fedlearn.coordination.steps.variance import MOST, VarianceLeft, typical_variance, variance_said


def typical(*said: tuple[float | None, int]) -> float | None:
    return typical_variance([variance_said(share, n_members) for share, n_members in said])


@pytest.mark.parametrize("share", [0.0, 0.01, 1.0, 3.5, MOST])
def test_a_share_within_the_bounds_is_taken_as_said(share: float) -> None:
    assert variance_said(share, 4) == VarianceLeft(share, 4)
    assert typical((share, 4)) == share


@pytest.mark.parametrize("share", [None, math.nan, math.inf, -math.inf, -1e-9, 1.1 * MOST])
def test_any_other_share_says_nothing(share: float | None) -> None:
    assert variance_said(share, 4) == VarianceLeft(math.inf, 4)
    assert typical((share, 4)) is None


def test_typical_share_is_the_median_by_members() -> None:
    assert typical((0.5, 1), (0.1, 1), (0.2, 1)) == 0.2
    assert typical((0.5, 8), (0.1, 4), (0.2, 3)) == 0.5
    assert typical((0.5, 7), (0.1, 4), (0.2, 3)) == 0.2


def test_fewer_than_half_of_the_members_cannot_move_it_beyond_what_others_say() -> None:
    for lie in (0.0, MOST, None, math.nan):
        assert typical((lie, 31), (0.1, 16), (0.2, 16)) in (0.1, 0.2)


def test_fewer_than_half_of_the_members_cannot_say_it_for_all() -> None:
    assert typical((0.5, 7), (None, 8)) is None
    assert typical((0.5, 8), (None, 7)) == 0.5


def test_nobody_says_nothing() -> None:
    assert typical() is None
