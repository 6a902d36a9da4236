import math
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
import pytest

from fedlearn.es.layout import Float32Array
from fedlearn.es.optimizers import Adam
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.schedules import Schedule
from fedlearn.es.strategy import Strategy
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.task import Batch, LossGradients, Members
from fedlearn.tasks.user.first_step import MOST_GROUPS, longer, longer_by_losses
from fedlearn.tasks.user.task_objective import TaskObjective
from tests.tasks.counting import CountingTask

DATA: Columns = {"x": np.arange(10.0)}
TENSORS: Mapping[str, Float32Array] = {"x": np.zeros(3, dtype=np.float32)}
RATE = 0.01

Loss = Callable[[float], float]


class Walking(CountingTask):
    """A task with a loss by how many first steps its weights are from zero."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(TENSORS, DATA, batch_size=5)
        self._loss = loss
        self.n_groups: list[int] = []
        """The groups of each call."""

    def loss_gradients(self, weights: Float32Array, batch: Batch) -> LossGradients:
        n_groups = len(batch.seeds)
        self.n_groups.append(n_groups)
        losses = np.full(n_groups, self._loss(float(weights[0]) / RATE), dtype=np.float32)
        return LossGradients(losses, np.full_like(weights, -n_groups))


def longer_by(loss: Loss, n_groups: int = 1) -> tuple[float, list[int]]:
    """What is found by Adam, and the groups of each call."""
    task = Walking(loss)
    return longer(TaskObjective(task, seed=1), Adam(RATE), DATA, n_groups=n_groups), task.n_groups


@pytest.mark.parametrize(
    ("target", "factor"), [(0.01, 1), (1, 1), (7.6, 1), (7.7, 10**0.5), (40, 10), (110, 10**1.5), (4e4, 1e4), (4e7, 1)]
)
def test_steps_are_longer_the_farther_away_the_least_loss_is(target: float, factor: float) -> None:
    found, calls = longer_by(lambda way: (way - target) ** 2)
    assert found == pytest.approx(factor)
    assert set(calls) == {1}


def test_of_most_networks_two_gradients_are_asked_for() -> None:
    _, calls = longer_by(lambda way: (way - 1) ** 2)
    assert len(calls) == 2


def test_no_gradient_is_asked_for_twice() -> None:
    found, calls = longer_by(lambda way: (way - 40) ** 2)
    assert found == 10.0
    assert len(calls) == 6  # the step's, four factors, and one farther away


def test_a_loss_that_falls_and_rises_again_and_falls_has_no_longer_steps() -> None:
    assert longer_by(lambda way: {0: 3.0, 3: 1.0, 9: 2.0}.get(round(way), 0.0))[0] == 1.0


def test_a_longer_step_that_saves_hardly_more_is_not_taken() -> None:
    assert longer_by(lambda way: {0: 5.0, 3: 4.0, 9: 3.6, 30: 3.51}.get(round(way), way))[0] == 1.0
    assert longer_by(lambda way: {0: 5.0, 3: 4.0, 9: 3.6, 30: 3.49}.get(round(way), way))[0] == 10.0


def test_a_loss_with_a_bound_says_nothing() -> None:
    assert longer_by(lambda way: {0: 1.0, 3: 0.9, 9: 0.6, 30: 0.5}.get(round(way), 0.99))[0] == 1.0
    assert longer_by(lambda way: {0: 1.0, 3: 0.9, 9: 0.6, 30: 0.5}.get(round(way), 1.01))[0] == 10.0


@pytest.mark.parametrize("loss", [lambda way: -way, lambda way: -math.log1p(way)])
def test_a_loss_without_a_least_value_says_nothing(loss: Loss) -> None:
    assert longer_by(loss)[0] == 1.0


@pytest.mark.parametrize("beyond", [math.inf, math.nan])
def test_where_the_loss_is_no_number_steps_end(beyond: float) -> None:
    assert longer_by(lambda way: -way if way < 50 else beyond)[0] == 10.0


@pytest.mark.parametrize(("n_groups", "n_tried"), [(1, 1), (5, 5), (1000, MOST_GROUPS)])
def test_rows_are_those_of_a_step_up_to_a_few_groups(n_groups: int, n_tried: int) -> None:
    found, calls = longer_by(lambda way: (way - 40) ** 2, n_groups)
    assert found == 10.0
    assert set(calls) == {n_tried}


class Far(CountingTask):
    """A task whose least loss is where all weights are so many steps from zero."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(TENSORS, DATA, batch_size=5)
        self._loss = loss

    def losses(self, members: Members, batch: Batch) -> Sequence[float]:
        assert batch.rows["x"].shape == (members.n_groups, 5)
        return [self._loss(float(tensors["x"].mean()) / RATE) for tensors in members.each()]


NOISY_STEP = Strategy(Perturbation(sigma=0.02, rank=1), 32, 64, Adam(RATE), "centered-ranks")


def longer_far(loss: Loss, strategy: Strategy = NOISY_STEP) -> float:
    task = Far(loss)
    return longer_by_losses(TaskObjective(task, seed=1), strategy, DATA, n_groups=2, seed=1)


@pytest.mark.parametrize(
    ("target", "factor"), [(1, 1), (10, 1), (18, 10**0.25), (100, 10), (-100, 10), (1000, 100), (1e9, 1)]
)
def test_steps_by_losses_are_a_tenth_of_the_best_first_one(target: float, factor: float) -> None:
    assert longer_far(lambda way: abs(way - target)) == pytest.approx(factor)


def test_a_loss_that_only_rises_has_usual_steps() -> None:
    assert longer_far(lambda way: way**2) == 1.0


def test_where_the_loss_of_a_step_is_no_number_those_by_losses_end() -> None:
    assert longer_far(lambda way: -way if way < 50 else math.nan) == pytest.approx(10**1.5 / 10)


def test_how_long_steps_are_does_not_follow_from_how_a_run_begins() -> None:
    slow = msgspec.structs.replace(NOISY_STEP, schedule=Schedule(warmup_steps=1000))
    assert longer_far(lambda way: abs(way - 100), slow) == pytest.approx(10)
