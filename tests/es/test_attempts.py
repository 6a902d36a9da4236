"""A run that is stuck far from its target begins again, and ends at its best."""

import math
from collections.abc import Sequence
from itertools import repeat

import numpy as np
import pytest

from fedlearn.es.attempts import ALIKE_STEPS, BLOCK_STEPS, Attempt, Attempts, attempt_after, attempt_of_search

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
    assert [news for attempt in told if (news := attempt.news(of_search=False))] == [
        "attempt 1 is far from target_loss and not on its way there, so attempt 2 begins from the first weights; the "
        "best ones are kept",
        "attempt 2 is far from target_loss and not on its way there, so attempt 3 begins from the first weights; the "
        "best ones are kept",
        "the run goes back to its best weights",
    ]


def searched(losses: Sequence[Sequence[float]], *, restarts: int = 1, n_steps: int = 0) -> list[Attempt]:
    """The attempt of a search after each step, whose members have these losses; of a run of `n_steps`, if not 0."""
    found: list[Attempt] = []
    for step, each in enumerate(losses):
        last, array = found[-1] if found else None, np.array(each, dtype=np.float32)
        is_last = step + 1 == n_steps
        found.append(attempt_of_search(last, Attempts(restarts), step=step, losses=array, is_last=is_last))
    return found


def alike(loss: float, n: int = ALIKE_STEPS) -> list[tuple[float, float]]:
    return [(loss, loss)] * n


SEARCHING = [(1.0, 9.0), (2.0, 8.0)]


def test_a_search_is_at_its_end_once_losses_were_alike_for_ten_steps_in_a_row() -> None:
    told = searched([*SEARCHING, *alike(4.0, 9), (4.0, 5.0), *alike(3.0)], restarts=0)
    assert [attempt.number for attempt in told] == [1] * 21 + [2]
    assert {attempt.move for attempt in told} == {"on"}
    assert told[1] == Attempt(1, 0, 5.0, 5.0, 0.0, math.inf)
    assert told[-1] == Attempt(2, 0, 5.0, 3.0, 10.0, math.inf)


@pytest.mark.parametrize(
    ("first", "low", "high", "counts"),
    [
        (5.0, 0.0, 5e-12, True),
        (5.0, 0.0, 6e-12, False),
        (5e-20, 0.0, 5e-32, True),
        (5e-20, 0.0, 1e-25, False),
        (1e9, 0.0, 1e-10, True),
        (1e9, 0.0, 2e-10, False),
        (5.0, 1e6, 1e6 + 0.25, True),
        (5.0, 1e6, 1e6 + 1.0, False),
    ],
)
def test_losses_are_alike_by_the_first_ones_or_by_what_float32_can_tell(
    first: float, low: float, high: float, *, counts: bool
) -> None:
    begun = (0.5 * first, 1.5 * first)
    assert [attempt.mark for attempt in searched([begun, (low, high)])] == [0.0, float(counts)]
    again = searched([*alike(4.0, 11), begun, (low, high)])
    assert (again[-1].number, again[-1].mark) == (2, float(counts))


def test_first_losses_may_be_alike() -> None:
    assert searched([(4.0, 4.0)])[0].mark == 1.0
    assert searched([(0.0, 0.0)])[0].mark == 1.0


def test_a_search_keeps_its_best_weights_and_begins_elsewhere() -> None:
    told = searched([*SEARCHING, *alike(4.0, 11), (20.0, 30.0), *alike(5.0, 12)])
    assert [attempt.move for attempt in told[11:14]] == ["keep", "anew", "on"]
    assert told[11].best == told[12].best == 4.0
    assert told[13] == Attempt(2, 13, 25.0, 25.0, 0.0, 4.0)
    # The second attempt is the last one, and worse.
    assert [(attempt.number, attempt.move) for attempt in told[22:24]] == [(2, "on"), (3, "back")]
    assert told[23].smoothed == 4.0
    assert told[24].move == "on"


def test_a_last_attempt_that_is_better_stays() -> None:
    told = searched([*SEARCHING, *alike(4.0, 11), (20.0, 30.0), *alike(3.0, 10)])
    assert (told[-1].number, told[-1].move, told[-1].smoothed) == (3, "on", 3.0)


def test_weights_are_kept_once_however_little_they_still_gain() -> None:
    told = searched([*alike(4.0, 10), *alike(3.999999, 1)])
    assert [(attempt.move, attempt.best) for attempt in told[9:]] == [("keep", 4.0), ("anew", 4.0)]


def test_a_worse_attempt_is_not_kept() -> None:
    told = searched([*alike(4.0, 11), *alike(5.0, 10), *alike(3.0, 11)], restarts=2)
    assert [(step, attempt.move) for step, attempt in enumerate(told) if attempt.move != "on"] == [
        (9, "keep"),
        (10, "anew"),
        (20, "anew"),
    ]
    assert (told[-1].number, told[-1].smoothed) == (4, 3.0)


@pytest.mark.parametrize(("last", "move", "number"), [(9.0, "back", 2), (3.0, "on", 2)])
def test_a_search_that_knows_its_end_ends_with_its_best(last: float, move: str, number: int) -> None:
    told = searched([*alike(4.0, 11), (20.0, 30.0), (last, last)], restarts=5, n_steps=13)
    assert (told[-1].move, told[-1].number) == (move, number)


def test_the_last_step_begins_nothing_anew() -> None:
    assert searched(alike(4.0, 10), restarts=5, n_steps=10)[-1].move == "on"
    assert searched(alike(4.0, 11), restarts=5, n_steps=11)[-1].move == "on"
    assert searched(alike(4.0, 11), restarts=5, n_steps=12)[-1].move == "anew"


def test_an_operator_is_told_where_a_search_goes() -> None:
    told = searched([*alike(4.0, 11), *alike(5.0, 12)])
    assert [news for attempt in told if (news := attempt.news(of_search=True))] == [
        "members of attempt 1 no longer differ, at a loss of 4; attempt 2 begins elsewhere, with 4 times the members, "
        "and the best weights are kept",
        "the run goes back to its best weights",
    ]
