from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, final

import numpy as np
import pytest

import es_core
from fedlearn.config import RunConfig, Schema
from fedlearn.es.layout import Float32Array, ParameterLayout, TensorSpec
from fedlearn.es.trials import Trials
from fedlearn.runs.throughput import MEASURE_S, ROUND_S, SLOW_S, Throughput, threads_of
from fedlearn.tasks.objective import Objective
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.tasks.strategy import strategy_of
from fedlearn.tasks.user.task_options import TaskOptions
from fedlearn.text.windows import WindowShape

DATA = {"x": np.arange(3)}


def config_of(**settings: Any) -> RunConfig:  # noqa: ANN401 (values of any setting)
    usual = {"perturb": "weights", "head": "perturbed", "group_size": 8, "sigma": 0.1, "volunteers": 1, "threads": 3}
    return Schema(TaskOptions).build({**usual, **settings})


@final
class Scripted(Objective):
    """An objective whose evaluations take the times that it is given, on a clock of its own."""

    layout = ParameterLayout((TensorSpec("vector", (5,)),))
    unit = "examples"
    work_per_member = 1

    def __init__(self, seconds: Callable[[Trials], float]) -> None:
        self.now = 5.0
        self.evaluated: list[Trials] = []
        self._seconds = seconds

    def initial_weights(self) -> Float32Array:
        return np.full(5, 7.0, dtype=np.float32)

    def evaluate(
        self, weights: Float32Array, data: Mapping[str, Float32Array], trials: Trials, *, threads: int
    ) -> Float32Array:
        assert weights.tolist() == [7.0] * 5
        assert data is DATA
        assert threads == 3
        self.now += self._seconds(trials)
        self.evaluated.append(trials)
        return np.zeros(trials.n_members, dtype=np.float32)

    @property
    def sizes(self) -> list[int]:
        return [trials.n_members for trials in self.evaluated]


@pytest.fixture(autouse=True)
def _six_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(es_core, "usable_processors", lambda: 6)


def measured(objective: Scripted, **settings: Any) -> float:  # noqa: ANN401 (values of any setting)
    config = config_of(**settings)
    return Throughput(config, clock=lambda: objective.now)(objective, strategy_of(config), DATA)


def test_the_best_of_many_short_evaluations_counts() -> None:
    """Doubled until they are long enough to be timed; beside another program most of them take longer."""
    others = iter([0.5, *[0.004, 0.0, 0.03, 0.02] * 100])
    objective = Scripted(lambda trials: trials.n_members / 8000 + next(others))
    assert measured(objective, volunteers=2) == pytest.approx(2 * 8000)
    assert objective.sizes[:4] == [8, 8, 16, 32]
    assert max(objective.sizes) <= 2 * 8000 * ROUND_S
    assert len(objective.sizes) > 15
    assert {trials.group_size for trials in objective.evaluated} == {8}


def test_half_a_second_is_enough() -> None:
    objective = Scripted(lambda trials: trials.n_members / 1e6)
    measured(objective)
    assert MEASURE_S < objective.now - 5.0 < 1.1 * MEASURE_S < 0.6
    assert objective.sizes[-1] == 16384  # 16 ms


def test_a_slow_start_takes_nothing_from_the_time_to_measure_in() -> None:
    times = iter([0.9 * SLOW_S, 0.2, 0.1, 0.3])
    objective = Scripted(lambda _: next(times))
    assert measured(objective) == pytest.approx(8 / 0.1)


def test_trials_that_take_long_are_not_repeated() -> None:
    objective = Scripted(lambda _: 2 * SLOW_S)
    assert measured(objective) == pytest.approx(8 / (2 * SLOW_S))
    assert objective.sizes == [8]


def test_volunteers_side_by_side_are_one_times_their_number() -> None:
    speeds = [
        measured(Scripted(lambda trials: trials.n_members / 1000.0), volunteers=volunteers) for volunteers in (1, 2)
    ]
    assert speeds == pytest.approx([1000.0, 2000.0])


@pytest.mark.parametrize("perturb", ["weights", "activations"])
def test_a_clock_that_stands_still_for_a_while_does_no_harm(perturb: str) -> None:
    objective = RnnObjective(
        seed=1, vocab_size=20, hidden_size=8, n_layers=1, window=WindowShape(1, 4, 8), embedding_scale=10.0
    )
    ticks = (0.05 * (number // 3) for number in count())
    config = config_of(perturb=perturb, threads=1)
    data = {"tokens": np.arange(20, dtype=np.uint16)}
    members_per_s = Throughput(config, clock=lambda: next(ticks))(objective, strategy_of(config), data)
    assert 0.0 < members_per_s < float("inf")


@pytest.mark.parametrize(
    ("volunteers", "threads", "expected"),
    [
        (0, 0, (1, 1)),
        (0, 5, (1, 1)),
        (1, 0, (6, 1)),
        (1, 2, (2, 1)),
        (2, 2, (2, 2)),
        (3, 2, (2, 3)),
        (4, 2, (2, 3)),
        (2, 4, (4, 1)),
        (9, 0, (6, 1)),
        (1, 7, (6, 1)),
    ],
)
def test_as_many_threads_as_the_processors_bear_are_measured(
    volunteers: int, threads: int, expected: tuple[int, int]
) -> None:
    assert threads_of(config_of(volunteers=volunteers, threads=threads)) == expected
