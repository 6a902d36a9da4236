"""A small model of PyTorch that can be cut, and crews of real processes that train it."""

from pathlib import Path

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
