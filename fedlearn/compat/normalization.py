"""The training mode of modules that are trained by machines which each see a part of a batch.

While it is trained, a batch norm goes by the rows of each part, as those of PyTorch's DataParallel do. Its running
averages are measured afterwards, with the trained weights.
"""

import copy
import threading
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules.instancenorm import _InstanceNorm

from fedlearn.tasks.torch.training_mode import ENOUGH_ROWS, averaging, norms_in_training

LOCKS = type(threading.Lock()), type(threading.RLock())
"""Types of what modules may have that can't be copied, and is shared by their copies."""


def in_training_mode(model: nn.Module) -> nn.Module:
    """A copy of the model that can be trained in parts: its dropout drops, and its batch norms go by their rows.

    Parameters keep their names.
    """
    locks = [value for module in model.modules() for value in vars(module).values() if isinstance(value, LOCKS)]
    made = copy.deepcopy(model, {id(lock): lock for lock in locks}).train()
    for module in made.modules():
        if isinstance(module, _InstanceNorm):
            module.eval()  # whose averages would move
    return made


@torch.no_grad()
def measure_averages(model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Measures the running averages of the model's batch norms on some batches, and leaves the model in evaluation."""
    norms = norms_in_training(model.train())
    model.eval()
    if not norms:
        return
    n_rows = 0
    with averaging(norms):
        for batch in batches:
            model(batch)
            if (n_rows := n_rows + len(batch)) >= ENOUGH_ROWS:
                break
