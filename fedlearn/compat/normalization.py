"""Batch norms and dropout of modules that are trained by machines which each see a part of a batch.

While it is trained, a batch norm goes by the rows of each part, as those of PyTorch's DataParallel do. Its running
averages are measured afterwards, with the trained weights.
"""

import copy
import threading
from collections.abc import Iterable
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

LOCKS = type(threading.Lock()), type(threading.RLock())
"""Types of what modules may have that can't be copied, and is shared by their copies."""

ENOUGH_ROWS = 4096
"""Rows by which averages are measured."""


@final
class PartNorm(nn.Module):
    """A batch norm in training that keeps no averages, with another's weight and bias."""

    def __init__(self, like: _BatchNorm) -> None:
        super().__init__()
        self.weight: nn.Parameter | None = like.weight
        self.bias: nn.Parameter | None = like.bias
        self.eps = like.eps

    def forward(self, x: Tensor) -> Tensor:
        others = [0, *range(2, x.dim())]
        centred = x - x.mean(others, keepdim=True)
        normal = centred * torch.rsqrt((centred * centred).mean(others, keepdim=True) + self.eps)
        if self.weight is None or self.bias is None:
            return normal
        shape = [1, -1, *[1] * (x.dim() - 2)]
        return normal * self.weight.view(shape) + self.bias.view(shape)


def without_training_mode(model: nn.Module) -> tuple[nn.Module, str]:
    """A copy of the model that can be trained in parts, and what is left out of it; empty if nothing is.

    Parameters keep their names.
    """
    locks = [value for module in model.modules() for value in vars(module).values() if isinstance(value, LOCKS)]
    made = copy.deepcopy(model, {id(lock): lock for lock in locks}).eval()
    for parent in list(made.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, _BatchNorm):
                setattr(parent, name, PartNorm(child))
    dropped = any(isinstance(module, _DropoutNd) and module.p > 0 for module in made.modules())
    return made, "dropout: all units take part in every step" if dropped else ""


@torch.no_grad()
def measure_averages(model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Measures the running averages of the model's batch norms on some batches, and leaves the model in evaluation."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]
    model.eval()
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a mean over all batches
        norm.train()
    n_rows = 0
    for batch in batches:
        model(batch)
        if (n_rows := n_rows + len(batch)) >= ENOUGH_ROWS:
            break
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.eval()
