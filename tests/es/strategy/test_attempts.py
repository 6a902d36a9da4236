"""The losses of a run's steps, and its end, decide on its attempts."""

import math

import numpy as np
import pytest
from msgspec.structs import replace

from fedlearn.es.attempts import ALIKE_STEPS, Attempt, Attempts
from fedlearn.es.optimizers.cma import Cma
from fedlearn.es.schedules import Schedule
from fedlearn.es.strategy import MOST_WIDENING, Strategy, ask, search_end, tell, widening
from fedlearn.es.update import Update
from tests.es.strategy import strategies

STRATEGY = replace(strategies.STRATEGY, group_size=2, population_limit=4, attempts=Attempts(1))
SEARCH = replace(STRATEGY, optimizer=Cma(0.1, 0.5), fitness_shaping="centered-ranks", attempts=Attempts(2))
AT_END = [[3.0, 3.0, 3.0, 3.0]] * ALIKE_STEPS


def attempts_told(
    losses: list[list[float]], strategy: Strategy = STRATEGY, *, block: bytes = strategies.BLOCK
) -> list[Update]:
    """The Updates of a run of steps with these losses, which wants a loss of 0."""
    updates: list[Update] = []
    for step, each in enumerate(losses):
        population = ask(strategy, step, updates[-1] if updates else None)
        found = np.array(each, dtype=np.float32)
        updates.append(tell(strategy, population, block=block, spans=((0, len(each)),), losses=found, duration_s=1.0))
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


def test_members_of_a_search_are_compared_with_all_unless_groups_have_rows_of_their_own() -> None:
    (of_all,) = attempts_told([[1.0, 2.0, 3.0, 4.0]], SEARCH, block=b"")
    (of_groups,) = attempts_told([[1.0, 2.0, 3.0, 4.0]], SEARCH)
    (of_weights,) = attempts_told(
        [[1.0, 2.0, 3.0, 4.0]], replace(STRATEGY, fitness_shaping="centered-ranks"), block=b""
    )
    assert of_all.utilities.tolist() == [42, 14, -14, -42]
    assert of_groups.utilities.tolist() == of_weights.utilities.tolist() == [28, -28, 28, -28]


def test_a_search_without_restarts_is_over_where_losses_are_alike() -> None:
    alone = replace(SEARCH, attempts=Attempts())
    *before, last = attempts_told(AT_END, alone)
    assert {search_end(alone, update) for update in (None, *before)} == {""}
    assert search_end(alone, last) == "the search is at its end: members' losses no longer differ from 3"
    assert search_end(replace(alone, optimizer=STRATEGY.optimizer), last) == ""


def test_losses_that_are_not_finite_say_nothing_of_a_search() -> None:
    updates = attempts_told([[3.0, math.nan, math.inf, 3.0], [math.nan] * 4], SEARCH)
    assert [update.attempt for update in updates] == [Attempt(1, 0, 3.0, 3.0, 1.0, math.inf)] * 2


def test_each_attempt_of_a_search_has_four_times_the_members() -> None:
    updates = attempts_told([*AT_END, [3.0] * 4, *AT_END], SEARCH)
    populations = [ask(SEARCH, update.step + 1, update) for update in updates]
    assert [population.limit for population in populations] == [4] * 10 + [16] * 10 + [64]
    shares = [population.optimizer for population in populations]
    assert shares[9] == Cma(0.1, 0.5)
    assert shares[10] == Cma(0.1, 0.5 * math.sqrt(2.0))
    assert shares[20] == Cma(0.1, 1.0)
    assert [update.attempt.move for update in updates if update.attempt is not None][9:11] == ["keep", "anew"]


def test_a_search_has_members_for_all_machines_if_these_are_more() -> None:
    updates = attempts_told([*AT_END, [3.0] * 4], SEARCH)
    grows = replace(SEARCH, max_population=1000)
    assert ask(grows, 11, updates[-1], n_machines=20).limit == 40
    assert ask(grows, 11, updates[-1], n_machines=2).limit == 16


def test_members_of_a_search_are_not_without_number() -> None:
    (update,) = attempts_told([[1.0, 2.0]], replace(SEARCH, attempts=Attempts(1000)))
    late = replace(update, attempt=Attempt(900, 0))
    assert widening(replace(SEARCH, attempts=Attempts(1000)), late) == MOST_WIDENING
    assert widening(STRATEGY, late) == widening(SEARCH, None) == widening(SEARCH, replace(update, attempt=None)) == 1
