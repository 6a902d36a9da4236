"""Steps have more members as evaluations of a noisy function add up."""

import numpy as np
import pytest

from fedlearn.es.growth import warmed
from fedlearn.tasks.function.noisy import FELT_NOISE, MOST_GROUPS, Widening, groups_after, warmup_steps

LOSSES = np.linspace(3.0, 7.0, 5)
"""Losses whose middle half is 2 wide."""


@pytest.mark.parametrize(
    ("n_evaluations", "groups"), [(0, 1), (799, 1), (800, 2), (50_399, 63), (50_400, 64), (10**9, 64)]
)
def test_each_eight_evaluations_of_a_number_add_a_group(n_evaluations: int, groups: int) -> None:
    assert groups_after(n_evaluations, 100) == groups


def test_a_warmup_has_about_the_groups_that_its_evaluations_allow() -> None:
    n, group_size = 100, 17
    steps, n_evaluations = warmup_steps(n, group_size), 0
    for step in range(steps):
        groups = warmed(MOST_GROUPS, step, steps, least=1)
        allowed = groups_after(n_evaluations, n)
        assert allowed / 1.5 <= groups <= 1.5 * allowed + 1
        n_evaluations += groups * group_size
    assert groups_after(n_evaluations, n) > MOST_GROUPS / 2


def after(*shares: float) -> Widening:
    """A search of ten numbers that took steps whose noise was such shares of the middle half of their losses."""
    widening = Widening(10)
    for share in shares:
        widening.took(LOSSES, LOSSES[0] + 2.0 * share)
    return widening


@pytest.mark.parametrize(("shares", "groups"), [([], 11), ([0.0], 9), ([0.0] * 5, 4), ([-2.0] * 5, 11)])
def test_evaluations_count_by_the_share_of_the_last_steps_that_felt_noise(shares: list[float], groups: int) -> None:
    assert after(*shares).groups_after(800) == groups


@pytest.mark.parametrize("share", [0.0, 0.9 * FELT_NOISE, np.nan, np.inf])
def test_less_noise_than_is_felt_widens_nothing(share: float) -> None:
    assert after(*[share] * 50).groups_after(10**6) == 1


def test_a_little_more_noise_is_felt() -> None:
    assert after(*[1.1 * FELT_NOISE] * 50).groups_after(800) == 11


def test_losses_that_are_alike_feel_any_noise() -> None:
    widening = Widening(10)
    for _ in range(50):
        widening.took(np.ones(5), 1.0 + 1e-9)
    assert widening.groups_after(800) == 11


def test_a_step_never_has_fewer_groups_than_the_one_before() -> None:
    widening = after(*[2.0] * 50)
    assert widening.groups_after(800) == 11
    for _ in range(50):
        widening.took(LOSSES, LOSSES[0])
        assert widening.groups_after(800) == 11
