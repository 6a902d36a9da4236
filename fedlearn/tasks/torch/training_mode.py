"""Modules in training mode, whose batch norms go by the rows of a group and get their running averages afterwards.

Volunteers then keep nothing from one group for the next, so that each gradient can be computed again from its rows.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

ENOUGH_ROWS = 4096
"""Rows by which averages are measured."""


def norms_in_training(model: nn.Module) -> list[_BatchNorm]:
    """The batch norms in training mode that move running averages."""
    return [
        module
        for module in model.modules()
        if isinstance(module, _BatchNorm) and module.training and module.track_running_stats
    ]


@contextmanager
def learning(model: nn.Module) -> Iterator[None]:
    """A context in which batch norms in training mode leave their averages as they are, and every row of an embedding
    has a gradient.

    PyTorch gives the row of `padding_idx` none, and graphs say nothing of padding.
    """
    norms = norms_in_training(model)
    padded = [(module, module.padding_idx) for module in model.modules() if isinstance(module, nn.Embedding)]
    for norm in norms:
        norm.track_running_stats = False
    for embedding, _ in padded:
        embedding.padding_idx = None
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
        for embedding, index in padded:
            embedding.padding_idx = index


@contextmanager
def averaging(norms: Sequence[_BatchNorm]) -> Iterator[None]:
    """A context in which running averages of a model in evaluation mode become those of all rows that it is given."""
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a mean over all batches
        norm.train()
    try:
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
            norm.eval()


@contextmanager
def judging(model: nn.Module, run: Callable[[], object]) -> Iterator[None]:
    """A context in which the model is in evaluation mode, with running averages of what it is given in `run`.

    Afterwards it has the modes and the averages that it had before.
    """
    norms, modes = norms_in_training(model), [(module, module.training) for module in model.modules()]
    before = [(buffer, buffer.clone()) for norm in norms for buffer in norm.buffers()]
    model.eval()
    try:
        if norms:
            with torch.no_grad(), averaging(norms):
                run()
        yield
    finally:
        for buffer, numbers in before:
            buffer.copy_(numbers)
        for module, is_training in modes:
            module.training = is_training
