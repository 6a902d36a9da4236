"""A fifth of the volunteers lies about sums of gradients, each holding the whole model."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from benchmarks.trust.false_results import falsify
from fedlearn.coordination.audits.audit import Verdict
from fedlearn.es.sums.estimate import CodedEstimate
from fedlearn.es.trials import TrialResults
from fedlearn.storage.logs.lines import read_lines
from fedlearn.tasks.torch.supervised import Rows, supervised
from fedlearn.tasks.user.named_task import NamedTask
from tests.run_folders import created, task_config
from tests.simulation.swarm.stage import StageOf
from tests.simulation.swarm.test_liars import Lie, drawn, flipped, maximal

N_VOLUNTEERS, LIARS = 10, ("volunteer 0", "volunteer 5")
SETTINGS = {"measure": "gradients", "group_size": 0, "sigma": 0, "share": "nothing", "steps": 80}
POPULATION = {"population_limit": N_VOLUNTEERS, "max_population": N_VOLUNTEERS, "audit": 0.5, "learning_rate": 0.01}


def sides() -> NamedTask:
    """Tells on which side of a plane a point lies."""
    points = np.random.default_rng(0).standard_normal((512, 16)).astype(np.float32)
    data: dict[str, np.ndarray] = {
        "x": points,
        "y": (points @ np.linspace(-1.0, 1.0, 16, dtype=np.float32) > 0).astype(np.int64),
    }

    def loss(model: nn.Module, rows: Rows) -> torch.Tensor:
        return nn.functional.cross_entropy(model(rows["x"]), rows["y"])

    training, held_out = (
        {key: column[part] for key, column in data.items()} for part in (slice(384), slice(384, None))
    )
    task = supervised(
        lambda: nn.Linear(16, 2), loss, training, held_out=held_out, batch_size=16, metrics={"loss": loss}
    )
    return NamedTask(task, "sides.py:task", bytes(16))


def shortened(results: TrialResults, _: np.random.Generator) -> TrialResults:
    numbers, shifts = results.estimate.numbers, results.estimate.shifts
    return TrialResults(results.losses, CodedEstimate((numbers * 0.8).astype(np.int8), shifts))


def held_out_loss(folder: Path, stage_of: StageOf, lie: Lie | None) -> tuple[float, set[str]]:
    """What a run ends at, and who was found false; without a lie two volunteers fewer."""
    folder.mkdir()
    stage = stage_of(created(task_config(folder, **SETTINGS | POPULATION), sides()), sides())
    participants = [stage.join() for _ in range(N_VOLUNTEERS if lie else N_VOLUNTEERS - len(LIARS))]
    if lie is not None:
        stage.go_to(1)
        generator = np.random.default_rng(0)
        for participant in participants[:: N_VOLUNTEERS // len(LIARS)]:
            falsify(participant, lambda _, true: TrialResults(true.losses, lie(true, generator).estimate))
    stage.settle()
    stage.close()
    figures = stage.run.prepared.examiner.validate(stage.trainer.replica.weights, threads=1)
    return next(iter(figures.values())), {verdict.name for verdict in read_lines(stage.run.folder.audits, Verdict)}


@pytest.mark.parametrize("lie", [flipped, drawn, maximal, shortened])
def test_who_lies_about_its_sum_is_named_and_the_run_learns_on(tmp_path: Path, stage_of: StageOf, lie: Lie) -> None:
    clean, nobody = held_out_loss(tmp_path / "clean", stage_of, None)
    attacked, named = held_out_loss(tmp_path / "attacked", stage_of, lie)
    print(f"{lie.__name__}: {clean:.4f} without liars, {attacked:.4f} with, named {sorted(named)}")
    assert nobody == set()
    assert named == set(LIARS)
    assert attacked < 1.05 * clean
