"""A task whose members observe numbers, which are normalised as they come."""

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import final

import msgspec
import numpy as np
import pytest

from benchmarks.trust.false_results import falsify
from fedlearn.coordination.audits.audit import Verdict
from fedlearn.es.layout import Float32Array, Statistic
from fedlearn.es.sums.moments import Int64Array, counted
from fedlearn.runs import history
from fedlearn.runs.run import Run
from fedlearn.simulation.swarm import Participant
from fedlearn.storage.journal.journal import read_journal
from fedlearn.storage.logs.lines import read_lines
from fedlearn.tasks.task import Batch, Members, Task
from fedlearn.tasks.user.named_task import NamedTask
from tests.run_folders import TARGET, created, reopened, task_config
from tests.simulation.swarm.stage import StageOf, journal_of

MEANS, DEVIATIONS = np.array([5.0, -1.0]), np.array([3.0, 0.2])
N_OBSERVATIONS = 50


@final
class Watching(Task):
    """Finds TARGET; what a member observes follows from its group's seed, and is nothing of its concern."""

    statistics: Mapping[str, Statistic] = MappingProxyType({"seen.mean": "mean", "seen.deviation": "deviation"})
    scales: Mapping[str, float] = MappingProxyType({"seen": 0.0})

    @property
    def tensors(self) -> Mapping[str, Float32Array]:
        return {
            "vector": np.zeros(TARGET.size, dtype=np.float32),
            "seen.mean": np.zeros(2, dtype=np.float32),
            "seen.deviation": np.ones(2, dtype=np.float32),
        }

    def losses(self, members: Members, batch: Batch) -> Float32Array:
        return self.observe(members, batch)[0]

    def observe(self, members: Members, batch: Batch) -> tuple[Float32Array, Int64Array]:
        own = list(members.each())
        rows = []
        for seed in batch.seeds:
            seen = np.random.default_rng(seed).normal(MEANS, DEVIATIONS, (N_OBSERVATIONS, 2))
            units = counted((seen - own[0]["seen.mean"]) / own[0]["seen.deviation"])
            rows.append(np.concatenate([[len(units)], units.sum(axis=0), (units**2).sum(axis=0)]))
        losses = [((arrays["vector"] - TARGET) ** 2).mean() for arrays in own]
        return np.array(losses, dtype=np.float32), np.concatenate(rows)


def watching() -> NamedTask:
    return NamedTask(Watching(), "fit.py:task", bytes(16))


def run_of(folder: Path, **settings: object) -> Run:
    settings = {"learning_rate_schedule": "constant", **settings}
    return created(task_config(folder), watching(), **settings)


def statistics_of(weights: Float32Array) -> tuple[list[float], list[float]]:
    parts = Watching().layout.split(weights)
    return parts["seen.mean"].tolist(), parts["seen.deviation"].tolist()


@pytest.mark.parametrize("exchange", ["replay", "sum"])
def test_all_replicas_end_with_the_mean_and_deviation_of_what_was_observed(
    tmp_path: Path, stage_of: StageOf, exchange: str
) -> None:
    run = run_of(tmp_path, steps=60, exchange=exchange)
    stage = stage_of(run, watching()).train(volunteers=2)
    assert stage.drifted() == []
    mean, deviation = statistics_of(stage.trainer.replica.weights)
    assert mean == pytest.approx(MEANS, abs=0.4)  # 1,000 observations of other numbers came before
    assert deviation == pytest.approx(DEVIATIONS, abs=0.6)
    last = list(read_journal(run.folder.journal))[-1]
    assert last.renormalization is not None
    assert last.renormalization.weight == 1000 + 60 * 8 * N_OBSERVATIONS
    assert history.replay(reopened(run)).holding.replica.digest == stage.trainer.replica.digest


def test_whoever_comes_late_and_a_resumed_run_have_the_same_statistics(tmp_path: Path, stage_of: StageOf) -> None:
    whole, parts = (run_of(tmp_path, steps=steps) for steps in (12, 5))
    stage_of(whole, watching()).train()
    stage_of(parts, watching()).train()
    resumed = stage_of(reopened(parts, steps=12), watching())
    resumed.join()
    resumed.go_to(7)
    resumed.join()
    resumed.settle()
    assert resumed.drifted() == []
    assert journal_of(parts)[:7] == journal_of(whole)[:7]
    assert resumed.followed(resumed.participants[1])


def corrupt(participant: Participant, factor: int) -> None:
    """From now on its moments are so many times what they are."""
    falsify(participant, lambda _, true: msgspec.structs.replace(true, moments=factor * true.moments))


def test_moments_that_cannot_be_are_refused(tmp_path: Path, stage_of: StageOf) -> None:
    stage = stage_of(run_of(tmp_path, steps=20), watching())
    stage.join()
    corrupt(stage.join(), -1)
    stage.settle()
    assert any("Result: moments: expected counts from 0" in notice for notice in stage.swarm.notices)
    assert stage.swarm.reason == "all 20 steps are done"
    assert math.isclose(statistics_of(stage.trainer.replica.weights)[0][0], 4.4, abs_tol=0.5)


def test_false_moments_are_found_by_audits(tmp_path: Path, stage_of: StageOf) -> None:
    run = run_of(tmp_path, steps=20, audit=1.0)
    stage = stage_of(run, watching())
    honest = stage.join()
    corrupt(stage.join(), 2)
    stage.settle()
    verdicts = list(read_lines(run.folder.audits, Verdict))
    assert {verdict.name for verdict in verdicts if not verdict.is_true} == {"volunteer 1"}
    assert stage.followed(honest)[-1] == 20


def test_moments_of_many_groups_are_longer_than_other_results(tmp_path: Path, stage_of: StageOf) -> None:
    stage = stage_of(run_of(tmp_path, steps=2, population_limit=1024, group_size=4), watching()).train()
    assert stage.swarm.reason == "all 2 steps are done"
