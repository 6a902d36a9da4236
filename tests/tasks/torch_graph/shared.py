"""A small task that travels as a graph, exported once: layers of which the last reads what the first made."""

from functools import cache

import numpy as np
import torch
from torch import nn

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.task import flat_weights
from fedlearn.tasks.torch.supervised import Supervised, supervised

N_PIECES = 5
CUTS = (2, 3)
"""Of three parts: the value that skips the layers crosses both."""
BATCH_SIZE = 8


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 16)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.last = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = hidden = torch.tanh(self.first(x))
        for layer in self.layers:
            hidden = torch.tanh(layer(hidden))
        last: torch.Tensor = self.last(hidden + kept)
        return last


def loss(model: nn.Module, rows: dict[str, torch.Tensor]) -> torch.Tensor:
    return nn.functional.mse_loss(model(rows["x"])[:, 0], rows["y"])


@cache
def task() -> Supervised:
    torch.manual_seed(0)
    x = np.random.default_rng(0).uniform(-1, 1, (64, 4)).astype(np.float32)
    return supervised(Residual, loss, {"x": x, "y": np.sin(3 * x[:, 0])}, batch_size=BATCH_SIZE)


@cache
def attachment() -> bytes:
    return task().as_graph()


@cache
def weights() -> Float32Array:
    """Of the whole model."""
    return flat_weights(task().tensors)
