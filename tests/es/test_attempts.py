"""A run that is stuck far from its target begins again, and ends at its best."""

import math
from collections.abc import Sequence
from itertools import repeat

import pytest

from fedlearn.es.attempts import BLOCK_STEPS, Attempt, Attempts, attempt_after

TARGET = -360.0
ATTEMPTS = Attempts(2, TARGET)
FLAT = tuple(repeat(-40.0, 2 * BLOCK_STEPS))


def after(losses: Sequence[float], *, attempts: Attempts = ATTEMPTS, n_steps: int = 0) -> list[Attempt]:
    """The attempt after each step; of a run of `n_steps`, if these are not 0."""
    found: list[Attempt] = []
    for step, loss in enumerate(losses):
        last = found[-1] if found else None
        found.append(attempt_after(last, attempts, step=step, loss=loss, is_last=step + 1 == n_steps))
    return found


def moves(losses: Sequence[float], *, attempts: Attempts = ATTEMPTS, n_steps: int = 0) -> list[tuple[int, str]]:
    """Where the run goes, and after how many steps."""
    told = after(losses, attempts=attempts, n_steps=n_steps)
    return [(step + 1, attempt.move) for step, attempt in enumerate(told) if attempt.move in ("anew", "back")]


def test_the_smoothed_loss_is_a_running_mean() -> None:
    first, second = after([10.0, 20.0])
    assert (first.first, first.smoothed, first.best) == (10.0, 10.0, math.inf)
    assert second.smoothed == pytest.approx(11.0)
    assert (second.first, second.number, second.began) == (10.0, 1, 0)


def test_a_flat_attempt_ends_after_its_second_block() -> None:
    assert moves(FLAT[1:]) == []
    assert moves(FLAT) == [(2 * BLOCK_STEPS, "anew")]
    again = after([*FLAT, -30.0])[-1]
    assert again == Attempt(2, 2 * BLOCK_STEPS, -30.0, -30.0, -30.0, best=-40.0)


def test_the_last_attempt_goes_back_to_the_best_weights_and_is_not_judged_again() -> None:
    worse = tuple(repeat(-20.0, 200))
    losses = [*FLAT, *worse]
    told = after(losses)
    assert moves(losses) == [(50, "anew"), (100, "anew"), (150, "back")]
    assert told[149].smoothed == told[149].best == -40.0


def test_the_last_attempt_stays_where_it_is_best() -> None:
    better = tuple(repeat(-50.0, 100))
    assert moves([*FLAT, *FLAT, *better, *better]) == [(50, "anew"), (100, "anew")]


def test_weights_are_kept_whenever_they_are_the_best_from_the_end_of_the_first_block_on() -> None:
    told = after([-float(step) for step in range(BLOCK_STEPS + 5)])
    assert [attempt.move for attempt in told] == ["on"] * (BLOCK_STEPS - 1) + ["keep"] * 6
    assert told[-1].best == told[-1].smoothed
    assert [attempt.move for attempt in after(FLAT)[BLOCK_STEPS - 1 : BLOCK_STEPS + 1]] == ["keep", "on"]


@pytest.mark.parametrize(("gain", "ends"), [(2.0, False), (0.5, True)])
def test_an_attempt_on_its_way_goes_on(gain: float, *, ends: bool) -> None:
    # Losses fall by this in each step; 12 blocks of 25 steps at that pace are 600 or 150 of a way of 300.
    losses = [-40.0 - gain * step for step in range(2 * BLOCK_STEPS)]
    assert bool(moves(losses)) is ends


@pytest.mark.parametrize(("loss", "ends"), [(-100.0, True), (-200.0, False)])
def test_an_attempt_that_is_a_third_of_the_way_is_not_far(loss: float, *, ends: bool) -> None:
    losses = [0.0, *repeat(loss, 200)]
    assert bool(moves(losses, attempts=Attempts(1, TARGET))) is ends


def test_a_run_that_has_been_at_its_target_never_begins_again() -> None:
    solved = tuple(repeat(-400.0, 2 * BLOCK_STEPS))
    assert moves([*solved, *repeat(-10.0, 300)]) == []


@pytest.mark.parametrize("n_steps", [120, 130])
def test_a_run_ends_at_its_best_weights(n_steps: int) -> None:
    losses = [*FLAT, *repeat(-10.0, 100)]
    assert moves(losses[:n_steps], n_steps=n_steps)[-1] == (n_steps, "back")
    last = after(losses[:n_steps], n_steps=n_steps)[-1]
    assert last.smoothed == last.mark == last.best == -40.0  # from which a run that is given more steps goes on
    better = [*FLAT, *repeat(-60.0, 100)]
    assert "back" not in [move for _, move in moves(better[:n_steps], n_steps=n_steps)]


def test_a_run_that_ends_with_its_first_step_has_nothing_to_go_back_to() -> None:
    assert [attempt.move for attempt in after([5.0], n_steps=1)] == ["on"]
    assert moves([*FLAT, 5.0], n_steps=51)[-1] == (51, "back")


def test_an_operator_is_told_of_other_weights() -> None:
    told = after([*FLAT, *FLAT, *repeat(-20.0, 60)])
    assert [attempt.news for attempt in told if attempt.news] == [
        "attempt 1 is far from target_loss and not on its way there, so attempt 2 begins from the first weights; the "
        "best ones are kept",
        "attempt 2 is far from target_loss and not on its way there, so attempt 3 begins from the first weights; the "
        "best ones are kept",
        "the run goes back to its best weights",
    ]
