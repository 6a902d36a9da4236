"""A small model of PyTorch that can be cut, and crews of real processes that train it."""

from pathlib import Path

from fedlearn.coordination.crews.planning import CrewPlanner
from fedlearn.runs import history
from fedlearn.runs.run import load, load_run_config
from fedlearn.storage.runs import RunFolder
from fedlearn.storage.task_file import load_task

TASK = """
import numpy as np
import torch
from torch import nn

import fedlearn

x = np.random.default_rng(0).uniform(-1, 1, (256, 4)).astype(np.float32)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 64)
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
        self.last = nn.Linear(64, 1)

    def forward(self, x):
        kept = hidden = torch.tanh(self.first(x))
        for layer in self.layers:
            hidden = torch.tanh(layer(hidden))
        return self.last(hidden + kept)


def loss(model, rows):
    return nn.functional.mse_loss(model(rows["x"])[:, 0], rows["y"])


torch.manual_seed(0)
data = {"x": x, "y": np.sin(3 * x[:, 0])}
task = fedlearn.supervised(Residual, loss, data, batch_size=8, settings={"sigma": 0.02, "learning_rate": 0.005})
"""

STEPS_BY_MEMBERS = (
    *("--population-limit", "128", "--group-size", "32", "--time-per-step", "60"),
    *("--audit", "0", "--sample-time", "0"),
)
"""A step ends when all members are in, however long they take, so that its Update depends on nothing else."""


def write_task(folder: Path) -> None:
    (folder / "task.py").write_text(TASK)


def digests_of_parts(folder: Path, *, seats: int) -> list[str]:
    """Of the server's replica at the end of the journal, in the order of the seats."""
    run_folder = RunFolder(folder / "trainingRuns/1")
    config = load_run_config(run_folder)
    run = load(run_folder, config, task=load_task(config.run.task))
    replica = history.rebuilt_at(run).holding.replica
    draftsman = CrewPlanner.of(run.prepared.invitation.attachment, seats=seats, wire="float32")
    draft = draftsman.draft([0] * seats)
    assert draft is not None
    parts = [replica.layout.part(place.tensors) for place in draft.stages]
    return [digest.hex() for digest in replica.digests(parts)]
