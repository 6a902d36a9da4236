"""A sine, by layers that add an early value again much later, which can be split. Needs fedlearn[torch].

python server.py --task examples/residual.py:task
python client.py ADDRESS
fedlearn plan examples/residual.py --memory 2,1
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import fedlearn

x = np.random.default_rng(0).uniform(-1, 1, (4096, 1)).astype(np.float32)
data = {"x": x, "y": np.sin(3 * x)}


class Residual(nn.Module):
    """What the second layer gives is read again by the last but one, on whatever machine that is."""

    def __init__(self, width=128, depth=6):
        super().__init__()
        self.first = nn.Linear(1, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.last = nn.Linear(width, 1)

    def forward(self, x):
        kept = hidden = torch.relu(self.first(x))
        for layer in self.layers:
            hidden = torch.relu(layer(hidden))
        return self.last(hidden + kept)


def loss(model, rows):
    return F.mse_loss(model(rows["x"]), rows["y"])


task = fedlearn.supervised(
    Residual, loss, data, batch_size=32, metrics={"error": loss}, settings={"sigma": 0.02, "learning_rate": 0.005}
)
