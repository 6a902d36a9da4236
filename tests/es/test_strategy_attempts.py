"""The losses of a run's steps, and its end, decide on its attempts."""

import math

import numpy as np
import pytest
from msgspec.structs import replace

from fedlearn.es.attempts import Attempt, Attempts
from fedlearn.es.schedules import Schedule
from fedlearn.es.strategy import Strategy, ask, tell
from fedlearn.es.update import Update
from tests.es import test_strategy

STRATEGY = replace(test_strategy.STRATEGY, group_size=2, population_limit=4, attempts=Attempts(1))


def attempts_told(losses: list[list[float]], strategy: Strategy = STRATEGY) -> list[Update]:
    """The Updates of a run of steps with these losses, which wants a loss of 0."""
    updates: list[Update] = []
    for step, each in enumerate(losses):
        population = ask(strategy, step, updates[-1] if updates else None)
        found = np.array(each, dtype=np.float32)
        updates.append(
            tell(strategy, population, block=test_strategy.BLOCK, spans=((0, len(each)),), losses=found, duration_s=1.0)
        )
    return updates


def test_the_median_of_the_losses_says_where_an_attempt_stands() -> None:
    first, second = (update.attempt for update in attempts_told([[3.0, 5.0, 1e9, math.nan], [25.0, 25.0, 25.0, 25.0]]))
    assert (first, second) == (Attempt(1, 0, 5.0, 5.0, 5.0, math.inf), Attempt(1, 0, 5.0, 7.0, 5.0, math.inf))


def test_a_step_without_a_finite_loss_changes_no_attempt() -> None:
    first, second = attempts_told([[3.0, 5.0, 4.0, 4.0], [math.nan, math.inf]])
    assert second.attempt == first.attempt == Attempt(1, 0, 4.0, 4.0, 4.0, math.inf)


def test_a_run_without_restarts_has_no_attempts() -> None:
    updates = attempts_told([[1.0, 2.0]], replace(STRATEGY, attempts=Attempts()))
    assert [update.attempt for update in updates] == [None]


@pytest.mark.parametrize(("ends", "move"), [({"steps": 27}, "back"), ({"duration_s": 27.0}, "back"), ({}, "on")])
def test_the_last_step_goes_back_to_the_best_weights(ends: dict[str, float], move: str) -> None:
    losses = [*([[4.0, 4.0]] * 25), [5.0, 5.0], [6.0, 6.0]]
    updates = attempts_told(losses, replace(STRATEGY, schedule=Schedule(**ends)))  # type: ignore[arg-type]
    moves = [update.attempt.move for update in updates if update.attempt is not None]
    assert moves == ["on"] * 24 + ["keep", "on", move]
