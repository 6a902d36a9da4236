"""What members of a linear layer give, one by one."""

import random

import numpy as np
import torch
from torch import Tensor, nn

from fedlearn.tasks.torch.members.members import TorchMembers

CHANCES = (lambda: torch.rand(()), random.random, np.random.rand)
"""Functions that draw a random number, each by a generator of its own."""


def expected(members: TorchMembers, x: Tensor) -> Tensor:
    """What each member's layer makes of its own x [members, n, inputs]."""
    tensors = list(members.each())
    return torch.stack(
        [
            nn.functional.linear(mine, torch.from_numpy(own["weight"]), torch.from_numpy(own["bias"]))
            for mine, own in zip(x, tensors, strict=True)
        ]
    )
