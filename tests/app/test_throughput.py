from itertools import count

import msgspec
import numpy as np
import pytest

import es_core
from fedlearn.app.run import strategy_of
from fedlearn.app.throughput import MEASURE_S, measure_throughput, probe_of, threads_of
from fedlearn.config import RunConfig
from fedlearn.objectives.base import Trials
from fedlearn.objectives.rnn import RnnObjective
from fedlearn.objectives.rnn_layout import rnn_layout
from fedlearn.storage.datasets import Dataset, build_dataset
from fedlearn.text.windows import WindowShape


def small_objective(dataset: Dataset) -> RnnObjective:
    return RnnObjective(
        seed=1,
        vocab_size=dataset.tokenizer.vocab_size,
        hidden_size=8,
        n_layers=1,
        window=WindowShape(1, 4, 8),
        embedding_scale=10.0,
    )


def test_the_best_of_ever_larger_evaluations_counts(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[Trials] = []
    now = [5.0]

    def member_losses(_: object, weights: np.ndarray, __: object, trials: Trials, *, threads: int) -> np.ndarray:
        assert threads == 3
        assert weights.size == rnn_layout(dataset.tokenizer.vocab_size, 8, 1, 10.0).size
        now[0] += (0.03, 0.02, 0.01, 0.05)[len(evaluated)]
        evaluated.append(trials)
        return np.zeros(trials.n_members, dtype=np.float32)

    monkeypatch.setattr(RnnObjective, "member_losses", member_losses)
    dataset = build_dataset(config.data)
    objective = small_objective(dataset)
    strategy = strategy_of(config)
    throughput = measure_throughput(objective, strategy, dataset, threads=3, clock=lambda: now[0])
    assert [(trials.group_size, trials.n_members) for trials in evaluated] == [(8, 8), (8, 16), (8, 32), (8, 64)]
    assert throughput == pytest.approx(32 * 8 / 0.01)
    assert 0.09 < MEASURE_S <= 0.1


@pytest.mark.parametrize("perturb", ["weights", "activations"])
def test_a_clock_that_stands_still_for_a_while_does_no_harm(config: RunConfig, perturb: str) -> None:
    dataset = build_dataset(config.data)
    config = msgspec.structs.replace(config, perturb=perturb)
    objective = small_objective(dataset)
    ticks = (0.05 * (number // 3) for number in count())
    throughput = measure_throughput(objective, strategy_of(config), dataset, threads=1, clock=lambda: next(ticks))
    assert 0.0 < throughput < float("inf")


def test_trials_that_are_measured_are_small_whatever_the_run_is() -> None:
    config = RunConfig(
        hidden_size=65536, batch_size=65536, context=65536, sequence_length=65536, group_size=65536, n_layers=2
    )
    probe = probe_of(msgspec.structs.replace(config, population_limit=70000, max_population=70000, precision="int8"))
    assert (probe.hidden_size, probe.batch_size, probe.context, probe.sequence_length) == (64, 1, 64, 64)
    assert probe.group_size == 64
    assert (probe.n_layers, probe.precision) == (2, "int8")
    assert (probe_of(RunConfig()).context, probe_of(RunConfig()).sequence_length) == (32, 16)


@pytest.mark.parametrize(
    ("volunteers", "threads", "expected"),
    [(0, 0, 1), (0, 5, 1), (1, 0, 6), (1, 2, 2), (2, 2, 4), (3, 2, 6), (4, 2, 6), (9, 0, 6), (1, 7, 6)],
)
def test_as_many_threads_as_the_local_volunteers_have_are_measured(
    monkeypatch: pytest.MonkeyPatch, volunteers: int, threads: int, expected: int
) -> None:
    monkeypatch.setattr(es_core, "usable_processors", lambda: 6)
    assert threads_of(RunConfig(volunteers=volunteers, threads=threads)) == expected
