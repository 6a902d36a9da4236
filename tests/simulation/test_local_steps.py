"""Runs whose volunteers take steps of their own where lines are slow, in virtual time."""

import itertools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from fedlearn.es.layout import Float32Array
from fedlearn.es.update import Update
from fedlearn.server.training.trainer import Trainer
from fedlearn.simulation.costs import Costs, LinkSpeeds
from fedlearn.simulation.timed_swarm import TimedSwarm
from fedlearn.storage.journal.journal import read_journal
from fedlearn.tasks.task import Batch, LossGradients
from fedlearn.tasks.user.named_task import NamedTask
from tests.run_folders import created, task_config
from tests.tasks.counting import CountingTask

N_WEIGHTS = 5_000
DATA = {"x": np.linspace(-1.0, 3.0, 400, dtype=np.float32)}
COSTS = Costs(member_s=0.01, step_s=1e-3, take_s=1e-3, close_s=1e-3)


class Pulled(CountingTask):
    """Each row pulls every weight towards itself, so that the loss is least at their mean, 1."""

    kind = "custom"

    def loss_gradients(self, weights: Float32Array, batch: Batch) -> LossGradients:
        means = [float(rows.mean()) for rows in batch.rows["x"]]
        losses = np.array([0.5 * ((weights - mean) ** 2).mean() for mean in means], dtype=np.float32)
        return LossGradients(losses, np.sum([weights - mean for mean in means], axis=0).astype(np.float32))


TENSORS: Mapping[str, Float32Array] = {"w": np.zeros(N_WEIGHTS, dtype=np.float32)}


def trained(folder: Path, mbit: float, local_steps: int, *, steps: int = 10) -> list[int]:
    """The number of local steps in each step of a run that ends near the least loss."""
    return [max(update.group_size // 2, 1) for update in updates_of(folder, mbit, local_steps, steps=steps)]


def updates_of(
    folder: Path,
    mbit: float,
    local_steps: int,
    *,
    n_volunteers: int = 2,
    steps: int = 10,
    tensors: Mapping[str, Float32Array] = TENSORS,
    **more: float,
) -> list[Update]:
    """The steps of a run that ends near the least loss."""
    settings: dict[str, str | float] = {
        "measure": "gradients",
        "group_size": 1,
        "population_limit": 2,
        "learning_rate": 0.05,
    }
    settings |= {"local_steps": local_steps, "steps": steps, "max_population": 64, "time_per_step": 60, **more}
    config = task_config(folder, **settings)
    task = NamedTask(Pulled(tensors, DATA, batch_size=8), "pulled.py:task", bytes(16))
    trainer, _ = Trainer.open(created(config, task))
    lines = LinkSpeeds(up_mbit=mbit, down_mbit=mbit, latency_s=0.0)
    swarm = TimedSwarm(trainer, n_volunteers, costs=COSTS, lines=lines, task=task)
    while swarm.advance():
        pass
    trainer.close()
    assert [metrics.volunteers for metrics in swarm.metrics[1:]] == [n_volunteers] * (steps - 1)
    updates = list(read_journal(swarm.folder.journal))
    weights = trainer.replica.weights
    assert np.ptp(weights) < 0.2
    assert 0.2 < weights.mean() < 1.8
    for metrics, update in zip(swarm.metrics, updates, strict=True):
        assert update.n_members == metrics.members
    return updates


MATRIX: Mapping[str, Float32Array] = {"w": np.zeros((50, 100), dtype=np.float32)}


@pytest.mark.parametrize("local_steps", [1, 0])
def test_sums_have_half_the_bytes_where_lines_are_slow(tmp_path: Path, local_steps: int) -> None:
    fast = updates_of(tmp_path / "fast", 1000.0, local_steps, tensors=MATRIX)
    slow = updates_of(tmp_path / "slow", 0.2, local_steps, tensors=MATRIX)
    assert {update.estimate.n_bytes for update in fast} == {5050}
    assert {update.estimate.n_bytes for update in slow[3:]} == {2550}


def test_volunteers_take_more_steps_by_themselves_the_slower_their_lines_are(tmp_path: Path) -> None:
    fast, slow, slowest = (trained(tmp_path / str(mbit), mbit, 0) for mbit in (1000.0, 1.0, 0.2))
    assert set(fast) == {1}
    assert slow[-1] in (4, 8, 16)
    assert slowest[-1] >= 4 * slow[-1]


def test_they_keep_their_number_once_lines_are_known(tmp_path: Path) -> None:
    found = trained(tmp_path, 1.0, 0, steps=30)
    changes = [each for each, _ in itertools.groupby(found)]
    assert len(changes) <= 4
    assert len(set(found[10:])) == 1


@pytest.mark.parametrize("mbit", [1000.0, 0.2])
def test_a_given_number_stays_whatever_lines_are_like(tmp_path: Path, mbit: float) -> None:
    assert set(trained(tmp_path, mbit, 5)) == {5}
