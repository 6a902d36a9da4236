import re
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from fedlearn.coordination.steps.standstill import LATE, MOSTLY, StandstillWatch, judged
from fedlearn.es.attempts import Attempt, Attempts
from fedlearn.es.optimizers import Sgd
from fedlearn.es.optimizers.muon import Muon
from tests.coordination.steps.test_step_source import GRADIENTS

STRATEGY = replace(GRADIENTS, optimizer=Sgd(0.03, 0.0), attempts=Attempts(restarts=2))


def watched(losses: Iterable[float | None]) -> StandstillWatch:
    watch = StandstillWatch()
    for loss in losses:
        watch.took(loss)
    return watch


def noisy(step: int) -> float:
    return 0.1 * (step * 7 % 5 - 2)


STANDING = [2.6, 2.6, 2.6, *(2.3 + noisy(step) for step in range(97)), *[0.0] * 200]
"""Losses that stand still while they are watched."""


def test_a_loss_that_stands_is_the_median_of_the_last_ones() -> None:
    watch = watched([*STANDING[:80], 999.0, *STANDING[81:]])
    assert (watch.stands, watch.loss) == (True, 2.3)
    assert watch.is_below(2.31 + 0.2)
    assert not watch.is_below(2.3)


@pytest.mark.parametrize(
    "losses",
    [
        [2.3 - 0.004 * step + noisy(step) for step in range(LATE.stop)],
        [*[2.0] * LATE.start, *[2.0] * (LATE.stop - LATE.start - MOSTLY), *[1.9] * MOSTLY],
        [2.3, 2.2, 2.3, *[1.1] * LATE.stop],
        [*[2.0] * 50, None, *[2.0] * 49],
        [-2.0] * LATE.stop,
        [2.0] * (LATE.stop - 1),
    ],
    ids=["falls", "falls at last", "fell at once", "has gaps", "is negative", "is young"],
)
def test_a_loss_that_falls_or_cannot_be_judged_does_not_stand(losses: list[float | None]) -> None:
    assert not watched(losses).stands


def test_a_loss_that_falls_by_less_than_a_hundredth_stands() -> None:
    assert watched([2.0] * LATE.start + [1.985] * 30).stands
    assert not watched([2.0] * LATE.start + [1.975] * 30).stands
    assert watched([-2.0] * 3 + [2.0] * 67 + [-0.5] * 30).stands
    assert not watched([2.0] * LATE.start + [-0.5] * 30).stands


def test_a_loss_that_rose_and_came_back_stands() -> None:
    assert watched([2.3] * 3 + [60.0] * 40 + [2.3] * 57).stands


def test_a_run_that_may_not_begin_again_is_told_what_helps() -> None:
    assert judged(None, watched(STANDING), STRATEGY) == (
        None,
        "the loss is 2.3 after 100 steps, no lower than before; if steps are too long, learning_rate = 0.01 in place "
        "of 0.03 helps",
    )
    assert judged(None, watched([1.0]), STRATEGY) == (None, "")


@pytest.mark.parametrize(
    ("attempt", "losses", "move", "news"),
    [
        (Attempt(1, 0), [1.0], "settle", ""),
        (
            Attempt(1, 0),
            STANDING,
            "keep",
            "the loss is 2.3 after 100 steps, no lower than before; so many are tried from the first weights "
            "with learning_rate = 0.01 in place of 0.03",
        ),
        (
            Attempt(2, 101, best=2.6),
            STANDING,
            "settle",
            "with learning_rate = 0.01 the loss is 2.3 after 100 steps; the run goes on so",
        ),
        (
            Attempt(2, 101, best=2.3),
            STANDING,
            "anew",
            "with learning_rate = 0.01 it is no lower after 100 steps; so many are tried with 0.0033",
        ),
        (
            Attempt(3, 201, best=2.3),
            STANDING,
            "back",
            "with learning_rate = 0.0033 it is no lower after 100 steps; the run goes on where it was, with 0.03",
        ),
        (Attempt(3, 201, best=2.3), [1.0] * MOSTLY, "settle", "with learning_rate = 0.0033 the loss is 1 after 100 .*"),
        (Attempt(3, 201, best=2.3), [1.0] * (MOSTLY - 1), "back", "with learning_rate = 0.0033 it is no lower .*"),
    ],
)
def test_what_follows_an_attempt_is_what_its_losses_say(
    attempt: Attempt, losses: list[float | None], move: str, news: str
) -> None:
    followed, told = judged(attempt, watched(losses), STRATEGY)
    assert followed is not None
    best = 2.3 if move == "keep" else attempt.best
    assert followed == Attempt(attempt.number, attempt.began, best=best, move=followed.move)
    assert followed.move == move
    assert re.fullmatch(news, told)


def test_it_is_told_that_hidden_matrices_keep_their_rate() -> None:
    strategy = replace(STRATEGY, optimizer=Muon(0.03))
    _, told = judged(Attempt(1, 0), watched(STANDING), strategy)
    assert told.endswith("learning_rate = 0.01 in place of 0.03 for all but hidden matrices")
