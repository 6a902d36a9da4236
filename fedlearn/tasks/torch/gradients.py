"""Gradients of a differentiable loss at the unperturbed weights, by PyTorch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from fedlearn.tasks.task import LossGradient, NoGradientError
from fedlearn.tasks.torch.seeds import seeded
from fedlearn.tasks.torch.trees import pick

Rows = Mapping[str, Tensor]


def loss_gradients(
    loss: Callable[[Rows], Tensor | float],
    parameters: Sequence[Tensor],
    rows: Rows,
    seeds: Sequence[int],
) -> Iterator[LossGradient]:
    """The loss and its gradient for the rows of one group after another; `rows` are [groups, batch_size, ...].

    What a loss draws from PyTorch's generators follows from its group's seed.

    Raises:
        NoGradientError: PyTorch can't differentiate the loss.
    """
    device = parameters[0].device
    with torch.enable_grad(), _differentiable(parameters):
        for group, seed in enumerate(seeds):
            with seeded(seed, device):
                found = _loss_of(loss, pick(rows, group))
            yield _differentiated(found, parameters)


@contextmanager
def _differentiable(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Lets PyTorch record what is computed from the parameters, whatever their `requires_grad` says."""
    before = [parameter.requires_grad for parameter in parameters]
    for parameter in parameters:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for parameter, was_differentiable in zip(parameters, before, strict=True):
            parameter.requires_grad_(was_differentiable)


def _loss_of(loss: Callable[[Rows], Tensor | float], rows: Rows) -> Tensor | float:
    try:
        return loss(rows)
    except RuntimeError as error:  # such as of `numpy()`, which PyTorch refuses where it records
        raise NoGradientError(f"PyTorch cannot differentiate the loss: {error}") from error


def _differentiated(loss: Tensor | float, parameters: Sequence[Tensor]) -> LossGradient:
    if not isinstance(loss, Tensor) or loss.grad_fn is None:
        raise NoGradientError("PyTorch cannot differentiate the loss: it is computed outside of PyTorch's operations")
    if loss.numel() != 1:
        raise ValueError(f"the loss: expected one number, got a tensor of shape {tuple(loss.shape)}; take its mean")
    try:
        parts = torch.autograd.grad(loss.reshape(()), parameters, allow_unused=True)
    except (RuntimeError, NotImplementedError) as error:
        raise NoGradientError(f"PyTorch cannot differentiate the loss: {error}") from error
    whole = [
        (torch.zeros_like(parameter) if part is None else part).reshape(-1)
        for part, parameter in zip(parts, parameters, strict=True)
    ]
    return LossGradient(float(loss.detach()), torch.cat(whole).cpu().numpy())
