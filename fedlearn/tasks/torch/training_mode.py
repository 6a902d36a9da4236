"""Modules in training mode, whose batch norms go by the rows of a group and get their running averages afterwards.

Volunteers then keep nothing from one group for the next, so that each gradient can be computed again from its rows.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.parametrizations import _SpectralNorm

from fedlearn.tasks.torch.seeds import seeded

ENOUGH_ROWS = 4096
"""Rows by which averages are measured."""

POWER_ITERATIONS = 15
"""Steps towards a matrix's norm where no call goes on from the one before; PyTorch takes as many at first."""


def norms_in_training(model: nn.Module) -> list[_BatchNorm]:
    """The batch norms in training mode that move running averages."""
    return [
        module
        for module in model.modules()
        if isinstance(module, _BatchNorm) and module.training and module.track_running_stats
    ]


@contextmanager
def learning(model: nn.Module) -> Iterator[None]:
    """A context in which batch norms in training mode leave their averages as they are, every row of an embedding has a
    gradient, and spectral norms find a matrix's norm at once.

    PyTorch gives the row of `padding_idx` none, and graphs say nothing of padding. A spectral norm comes closer by a
    step in each call, from where the last call left it, and here every call begins where the first one does.
    """
    norms = norms_in_training(model)
    padded = [(module, module.padding_idx) for module in model.modules() if isinstance(module, nn.Embedding)]
    spectral = [(module, module.n_power_iterations) for module in model.modules() if isinstance(module, _SpectralNorm)]
    for norm in norms:
        norm.track_running_stats = False
    for embedding, _ in padded:
        embedding.padding_idx = None
    for module, n_iterations in spectral:
        module.n_power_iterations = max(n_iterations, POWER_ITERATIONS)
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
        for embedding, index in padded:
            embedding.padding_idx = index
        for module, n_iterations in spectral:
            module.n_power_iterations = n_iterations


@contextmanager
def buffers_taken_back(model: nn.Module) -> Iterator[Callable[[], bool]]:
    """A context after which all buffers are what they were; gives a function that says whether they have changed."""
    places = [
        (module._buffers, name, buffer)
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    copies = {id(buffer): buffer.clone() for *_, buffer in places}
    for owner, name, buffer in places:
        owner[name] = copies[id(buffer)]

    def have_changed() -> bool:
        now = [(owner[name], copies[id(buffer)]) for owner, name, buffer in places]
        return any(present is not copy or copy._version for present, copy in now)

    try:
        yield have_changed
    finally:
        for owner, name, buffer in places:
            owner[name] = buffer


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
def judging(model: nn.Module, run: Callable[[], object], *, moves: bool = False) -> Iterator[None]:
    """A context in which the model is in evaluation mode, with running averages of what it is given in `run`.

    A model that `moves` other buffers while it learns is given it in its own mode before. Afterwards it has the modes
    and the averages that it had before.
    """
    norms, modes = norms_in_training(model), [(module, module.training) for module in model.modules()]
    before = [(buffer, buffer.clone()) for norm in norms for buffer in norm.buffers()]
    try:
        if moves:
            with torch.no_grad(), seeded(0, torch.device("cpu")):
                run()
        model.eval()
        if norms:
            with torch.no_grad(), averaging(norms):
                run()
        yield
    finally:
        for buffer, numbers in before:
            buffer.copy_(numbers)
        for module, is_training in modes:
            module.training = is_training
