"""Models that draw, or that round otherwise as graphs: volunteers who are sent the model are right."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from fedlearn.coordination.audits.audit import Verdict
from fedlearn.storage.logs.lines import read_lines
from fedlearn.tasks.task import flat_weights
from fedlearn.tasks.torch.supervised import Rows, supervised
from fedlearn.tasks.user.named_task import NamedTask
from tests.run_folders import created, task_config
from tests.simulation.swarm.stage import StageOf

SETTINGS = {"share": "graph", "steps": 8, "audit": 1.0, "learning_rate": 0.01, "volunteers": 0}
GRADIENTS = {"measure": "gradients", "group_size": 0, "sigma": 0, "population_limit": 6, "max_population": 6}
LOSSES = {"measure": "losses", "group_size": 4, "population_limit": 24, "max_population": 24}


def cross_entropy(model: nn.Module, rows: Rows) -> Tensor:
    return F.cross_entropy(model(rows["x"]), rows["y"])


def noisy(model: nn.Module, rows: Rows) -> Tensor:
    return cross_entropy(model, {**rows, "x": rows["x"] + torch.randn_like(rows["x"])})


def rounded(model: nn.Module, rows: Rows) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        found = model(rows["x"])
    return F.cross_entropy(found.float(), rows["y"])


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 2))


def named(model: Callable[[], nn.Module], loss: Callable[[nn.Module, Rows], Tensor]) -> NamedTask:
    points = np.random.default_rng(0).standard_normal((256, 16)).astype(np.float32)
    data = {"x": points, "y": (points.sum(1) > 0).astype(np.int64)}
    return NamedTask(supervised(model, loss, data, batch_size=16), "sides.py:task", bytes(16))


@pytest.mark.parametrize("measured", [GRADIENTS, LOSSES])
@pytest.mark.parametrize(
    ("model", "loss"), [(dropping, cross_entropy), (plain, noisy), (plain, rounded)], ids=["drops", "draws", "rounds"]
)
@pytest.mark.parametrize("has_file", [False, True])
def test_nobody_who_runs_the_graph_is_found_false(
    tmp_path: Path,
    stage_of: StageOf,
    model: Callable[[], nn.Module],
    loss: Callable[[nn.Module, Rows], Tensor],
    measured: dict[str, object],
    has_file: bool,
) -> None:
    task = named(model, loss)
    run = created(task_config(tmp_path, **SETTINGS | measured), task)
    stage = stage_of(run, task if has_file else None).train(volunteers=2)
    assert not [*read_lines(stage.run.folder.audits, Verdict)]
    assert stage.trainer.replica.step == 8
    np.testing.assert_array_equal(stage.run.prepared.objective.initial_weights(), flat_weights(task.task.tensors))
