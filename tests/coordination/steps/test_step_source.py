from unittest.mock import Mock

import msgspec
import numpy as np
import pytest

from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.steps.closing import ClosedStep, StepPace
from fedlearn.coordination.steps.divergence import PATIENCE
from fedlearn.coordination.steps.standstill import LATE
from fedlearn.coordination.steps.step_source import OwnSteps
from fedlearn.es.attempts import Attempt, Attempts
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.optimizers import Sgd
from fedlearn.es.optimizers.cma import Cma
from fedlearn.es.perturbation import Perturbation, Space
from fedlearn.es.strategy import Strategy, ask
from fedlearn.es.sums.estimate import NO_ESTIMATE, decode_estimate, encode_estimate
from fedlearn.es.update import Update

LAYOUT = ParameterLayout((TensorSpec("w", (20, 30)),))
GRADIENTS = Strategy(
    perturbation=Perturbation(0.0, 0, "nothing"),
    group_size=1,
    population_limit=1,
    optimizer=Sgd(0.1, 0.0),
    fitness_shaping="normalized",
)


def reopened(last: Update, strategy: Strategy = GRADIENTS) -> OwnSteps:
    """The steps of a run that goes on after this Update, of which the next was opened."""
    plan = Mock(layout=LAYOUT, max_share=1.0)
    plan.block_of.return_value = b""
    steps = OwnSteps(plan, strategy)
    assert steps.open(last.step + 1, last, [], pace=StepPace(9.0), first_member=0, now=0.0) is not None
    return steps


def closed(steps: OwnSteps, number: int, length: float, *, local_steps: int = 1) -> float:
    """The length of a step's total, of which one volunteer sent a sum that is so long."""
    return length_of(updated(steps, number, length, local_steps=local_steps))


def length_of(update: Update) -> float:
    return float(np.linalg.norm(decode_estimate(LAYOUT, update.estimate) * update.gradient_scale))


def updated(steps: OwnSteps, number: int, length: float, *, local_steps: int = 1) -> Update:
    return ended(steps, number, length, local_steps=local_steps).update


def ended(
    steps: OwnSteps,
    number: int,
    length: float,
    *,
    local_steps: int = 1,
    strategy: Strategy = GRADIENTS,
    last: Update | None = None,
) -> ClosedStep:
    population = ask(msgspec.structs.replace(strategy, local_steps=local_steps), number, last)
    step = OpenStep(population, opened_at=0.0, deadline=9.0, first_member=0, layout=LAYOUT)
    unit = 2.0**-population.perturbation.unit_bits
    numbers = np.full(LAYOUT.size, length / np.sqrt(LAYOUT.size) / unit).astype(np.int64)
    losses = np.ones(local_steps, dtype=np.float32)
    assert not step.lease(local_steps).take(0, losses, encode_estimate(LAYOUT, numbers), population.group_size)
    return steps.close(step, 1.0)


def test_a_way_of_local_steps_is_as_long_as_it_is_however_short_gradients_were() -> None:
    steps = OwnSteps(Mock(), GRADIENTS)
    assert [closed(steps, n, 1.0) for n in range(3)] == pytest.approx([1.0, 1.0, 1.0], rel=0.02)
    assert [closed(steps, n, 30.0, local_steps=8) for n in range(3, 5)] == pytest.approx([30.0, 30.0], rel=0.02)
    # Each is measured against its like.
    assert closed(steps, 5, 30.0) == pytest.approx(4.0, rel=0.02)
    assert closed(steps, 6, 200.0, local_steps=8) == pytest.approx(120.0, rel=0.02)


def test_a_run_that_goes_on_still_knows_how_long_sums_are() -> None:
    last = updated(OwnSteps(Mock(), GRADIENTS), 7, 1.0)
    steps = reopened(last)
    assert closed(steps, 8, 1000.0) == pytest.approx(4.0, rel=0.02)
    assert closed(reopened(last), 8, 3.0) == pytest.approx(3.0, rel=0.02)


def test_a_run_that_goes_on_with_other_local_steps_takes_the_first_way_as_it_is() -> None:
    last = updated(OwnSteps(Mock(), GRADIENTS), 7, 1.0)
    steps = reopened(last, msgspec.structs.replace(GRADIENTS, local_steps=8))
    assert closed(steps, 8, 30.0, local_steps=8) == pytest.approx(30.0, rel=0.02)


@pytest.mark.parametrize(("space", "is_told"), [("nothing", True), ("activations", False)])
def test_it_is_told_where_gradients_do_not_lower_the_loss(space: Space, *, is_told: bool) -> None:
    strategy = msgspec.structs.replace(GRADIENTS, perturbation=Perturbation(0.1, 0, space))
    steps = OwnSteps(Mock(), strategy)
    news = [ended(steps, step, 1.0, strategy=strategy).news for step in range(LATE.stop)]
    assert not any(news[:-1])
    assert ("learning_rate = 0.033 in place of 0.1" in news[-1]) == is_told


def gone_on(steps: OwnSteps, strategy: Strategy, *, n_steps: int, last: Update | None = None) -> list[ClosedStep]:
    """The ends of so many steps after this one, with losses of 1."""
    found: list[ClosedStep] = []
    for _ in range(n_steps):
        number = 0 if last is None else last.step + 1
        found.append(ended(steps, number, 1.0, strategy=strategy, last=last))
        last = found[-1].update
    return found


def moves_of(ends: list[ClosedStep]) -> list[tuple[int, str]]:
    updates = [end.update for end in ends]
    return [(u.step, u.attempt.move) for u in updates if u.attempt is not None and u.attempt.move != "on"]


def test_a_run_whose_loss_stands_still_tries_lower_rates_and_goes_back_where_none_helps() -> None:
    strategy = msgspec.structs.replace(GRADIENTS, attempts=Attempts(restarts=2))
    found = gone_on(OwnSteps(Mock(), strategy), strategy, n_steps=310)
    assert [end.update.step for end in found if end.news] == [99, 200, 300]
    assert moves_of(found) == [(99, "keep"), (100, "anew"), (200, "anew"), (300, "back"), (301, "settle")]
    rates = [end.update.optimizer.learning_rate for end in found]
    assert rates == pytest.approx([0.1] * 101 + [0.1 / 3] * 100 + [0.1 / 9] * 100 + [0.1] * 9)
    assert [end.update.attempt for end in found[302:]] == [None] * 8


def test_a_server_that_goes_on_has_not_seen_the_first_losses_and_settles() -> None:
    strategy = msgspec.structs.replace(GRADIENTS, attempts=Attempts(restarts=2))
    before = gone_on(OwnSteps(Mock(), strategy), strategy, n_steps=50)
    after = gone_on(OwnSteps(Mock(), strategy), strategy, n_steps=200, last=before[-1].update)
    found = [*before, *after]
    assert moves_of(found) == [(99, "settle")]
    assert [end.update.attempt for end in found] == [Attempt(1, 0)] * 99 + [Attempt(1, 0, move="settle")] + [None] * 150
    assert {end.update.optimizer.learning_rate for end in found} == {0.1}
    assert not any(end.news for end in found)


def test_noise_of_more_groups_is_longer_by_their_root() -> None:
    noisy = msgspec.structs.replace(GRADIENTS, perturbation=Perturbation(0.1, 1, "activations"), group_size=2)
    last = updated(OwnSteps(Mock(), GRADIENTS), 7, 1.0)
    last = msgspec.structs.replace(last, group_size=2, spans=((0, 32),))
    clipping = reopened(last, noisy)._clipping[1]
    length = np.linalg.norm(decode_estimate(LAYOUT, last.estimate)) / 4.0
    assert clipping._totals.limit([]) == pytest.approx(4.0 * length, rel=1e-6)


def test_a_run_is_complete_once_its_search_is_at_its_end() -> None:
    search = msgspec.structs.replace(
        GRADIENTS, perturbation=Perturbation(0.1, 0), optimizer=Cma(0.1), attempts=Attempts(1)
    )
    plan = Mock(layout=LAYOUT)
    plan.completion.return_value = ""
    steps, update = OwnSteps(plan, search), updated(OwnSteps(plan, GRADIENTS), 0, 1.0)
    under_way, over = (msgspec.structs.replace(update, attempt=Attempt(n, 0, smoothed=3.5)) for n in (2, 3))
    assert steps.completion(1, under_way) == ""
    assert steps.completion(1, over) == "the search is at its end: members' losses no longer differ from 3.5"
    plan.completion.return_value = "all 1 steps are done"
    assert steps.completion(1, over) == "all 1 steps are done"


def test_a_step_of_a_wider_search_may_take_longer() -> None:
    search = msgspec.structs.replace(
        GRADIENTS, perturbation=Perturbation(0.1, 0), optimizer=Cma(0.1), attempts=Attempts(1)
    )
    plan = Mock(layout=LAYOUT, max_share=1.0)
    plan.block_of.return_value = b""
    update = updated(OwnSteps(plan, GRADIENTS), 0, 1.0)
    steps = OwnSteps(plan, search)
    for number, deadline in ((1, 12.0), (2, 39.0)):
        last = msgspec.structs.replace(update, attempt=Attempt(number, 0))
        step = steps.open(1, last, [], pace=StepPace(9.0), first_member=0, now=3.0)
        assert step is not None
        assert step.deadline == deadline


@pytest.mark.parametrize(("losses", "is_alarming"), [((2.0, 2.0), True), ((2.0, 3.0), False)])
def test_nobody_is_trusted_while_losses_are_alike_which_would_end_a_search(
    losses: tuple[float, float], *, is_alarming: bool
) -> None:
    search = msgspec.structs.replace(
        GRADIENTS, perturbation=Perturbation(0.1, 0), optimizer=Cma(0.1), group_size=2, population_limit=2
    )
    for strategy in (search, msgspec.structs.replace(search, optimizer=Sgd(0.1, 0.0))):
        plan = Mock(layout=LAYOUT, max_share=1.0)
        plan.block_of.return_value = b""
        steps = OwnSteps(plan, strategy)
        step = steps.open(0, None, [], pace=StepPace(9.0), first_member=0, now=0.0)
        assert step is not None
        assert not step.lease(2).take(0, np.array(losses, dtype=np.float32), NO_ESTIMATE, 2)
        assert steps.close(step, 1.0).is_alarming is (is_alarming and strategy is search)


def test_a_search_that_begins_elsewhere_has_not_diverged() -> None:
    search = msgspec.structs.replace(
        GRADIENTS,
        perturbation=Perturbation(0.1, 0),
        optimizer=Cma(0.1),
        group_size=2,
        population_limit=2,
        attempts=Attempts(1),
    )
    plan = Mock(layout=LAYOUT, max_share=1.0)
    plan.block_of.return_value = b""
    steps, last, found = OwnSteps(plan, search), None, []
    for number, losses in enumerate([(1.0, 2.0), *[(1.0, 1.0)] * 11, *[(100.0, 200.0)] * (PATIENCE + 5)]):
        step = steps.open(number, last, [], pace=StepPace(9.0), first_member=0, now=0.0)
        assert step is not None
        n_members = step.population.limit
        assert not step.lease(n_members).take(0, np.resize(losses, n_members).astype(np.float32), NO_ESTIMATE, 2)
        found.append(steps.close(step, 1.0))
        last = found[-1].update
    assert [move for _, move in moves_of(found)].count("anew") == 1
    assert not any(end.problem for end in found)
