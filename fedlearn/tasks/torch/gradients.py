"""Sums of gradients of a differentiable loss at the unperturbed weights, by PyTorch."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from fedlearn.tasks.task import LossGradients, NoGradientError, most_at_once
from fedlearn.tasks.torch.backward import Backward
from fedlearn.tasks.torch.seeds import seeded
from fedlearn.tasks.torch.trees import between, pick, stacked

Rows = Mapping[str, Tensor]
Loss = Callable[[Rows], Any]

LIGHT_S = 0.005
"""Seconds of a group up to which computing many together is tried: what takes longer keeps a processor busy alone."""


N_TIMED = 5
"""Times that are taken of each number of groups; asking a clock takes a tenth of a small model's gradient on some
systems."""


@final
class Batching:
    """Whether the gradients of many groups are computed together, which they are where that was faster.

    Numbers with as many binary digits count as one: a few groups may be slower together where many are faster.
    """

    def __init__(self, backward_bytes: int = 0) -> None:
        self._most = most_at_once(backward_bytes)
        self._least_s: dict[int, float] = {}
        """The least seconds of a group, by the binary digits of the number of groups."""
        self._n_timed = Counter[int]()

    def size(self, n_left: int) -> int:
        """The number of groups that come next, of those that are left."""
        alone_s, together = self._least_s.get(1, inf), min(n_left, self._most)
        if alone_s > LIGHT_S or self._least_s.get(together.bit_length(), alone_s) > alone_s:
            return 1
        return together

    def is_timed(self, n_groups: int) -> bool:
        """Whether the time of so many groups together is asked for."""
        return self._n_timed[n_groups.bit_length()] < N_TIMED

    def took(self, n_groups: int, seconds: float) -> None:
        """Remembers the least seconds of a group."""
        n_digits, each = n_groups.bit_length(), seconds / n_groups
        self._n_timed[n_digits] += 1
        self._least_s[n_digits] = min(each, self._least_s.get(n_digits, inf))

    def refuse(self) -> None:
        """Takes one group after another from now on."""
        self._most = 1


def loss_gradients(
    loss: Loss,
    parameters: Sequence[Tensor],
    rows: Rows,
    n_groups: int,
    *,
    seed: int | None,
    more: Callable[[int], Rows] | None = None,
    batching: Batching,
    backward: Backward | None = None,
    now: Callable[[], float],
) -> LossGradients:
    """The losses of groups and the sum of their gradients; `rows` are [groups, batch_size, ...].

    What losses draw from PyTorch's generators follows from the seed, and they are computed one after another; None
    leaves the generators alone. `more` gives further rows of the group of a number, such as random numbers. `now` gives
    seconds, by which batching chooses; `backward` remembers the way to a gradient from one call to the next.

    Raises:
        NoGradientError: PyTorch can't differentiate the loss.
    """
    losses: list[float] = []
    total: Tensor | None = None
    backward = Backward() if backward is None else backward
    # Seeding takes longer than the gradient of a small model, so it is done once, and for all that draws in one order.
    with torch.enable_grad(), _differentiable(parameters), seeded(seed, parameters[0].device):
        while len(losses) < n_groups:
            first = len(losses)
            size = batching.size(n_groups - first) if seed is None else 1
            started = now() if batching.is_timed(size) else None
            numbers = range(first, first + size)
            further = [more(number) for number in numbers] if more is not None else []
            found = None
            if size > 1:
                some = between(rows, first, first + size) | (stacked(further) if further else {})
                if (found := _together(loss, parameters, some, size, backward)) is None:
                    batching.refuse()
            if found is None:
                groups = [pick(rows, number) | its for number, its in zip(numbers, further or [{}] * size, strict=True)]
                found = _one_by_one(loss, parameters, groups, backward)
            if started is not None:
                batching.took(size, now() - started)
            losses += found[0]
            total = found[1] if total is None else total.add_(found[1])
    assert total is not None, "gradients of no groups"
    return LossGradients(np.array(losses, dtype=np.float32), total.cpu().numpy())


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


def _together(
    loss: Loss, parameters: Sequence[Tensor], rows: Rows, size: int, backward: Backward
) -> tuple[list[float], Tensor] | None:
    """The losses of some groups and the sum of their gradients; None where they can't be had together."""
    try:
        losses: Tensor = torch.func.vmap(loss)(rows)
        gradient = backward.gradient(losses.sum(), parameters)
    except Exception:  # whatever vmap refuses
        return None
    found = losses.detach().reshape(-1).tolist()
    return (found, gradient) if len(found) == size and are_finite(gradient) else None


def _one_by_one(
    loss: Loss, parameters: Sequence[Tensor], groups: Sequence[Rows], backward: Backward
) -> tuple[list[float], Tensor]:
    """The losses of some groups and the sum of their gradients, one after another."""
    losses, total = _alone(loss, parameters, groups[0], backward)
    for rows in groups[1:]:
        found, gradient = _alone(loss, parameters, rows, backward)
        losses, total = losses + found, total.add_(gradient)
    return losses, total


def _alone(loss: Loss, parameters: Sequence[Tensor], rows: Rows, backward: Backward) -> tuple[list[float], Tensor]:
    """The loss of a group and its gradient: infinity and zeros where one of them is not finite."""
    try:
        found = loss(rows)
    except RuntimeError as error:  # such as of `numpy()`, which PyTorch refuses where it records
        raise NoGradientError(f"PyTorch cannot differentiate the loss: {error}") from error
    if not isinstance(found, Tensor):
        raise NoGradientError(
            f"PyTorch cannot differentiate the loss: it is of type {type(found).__name__}, computed outside of"
            " PyTorch's operations; where it was a tensor before, return that, without float() or .item()"
        )
    if found.grad_fn is None:
        raise NoGradientError(
            "PyTorch cannot differentiate the loss: none of the ways to it from the parameters has a derivative, as"
            " behind argmax, a comparison or detach()"
        )
    if found.numel() != 1:
        raise ValueError(f"the loss: expected one number, got a tensor of shape {tuple(found.shape)}; take its mean")
    try:
        gradient = backward.gradient(found.reshape(()), parameters)
    except (RuntimeError, NotImplementedError) as error:
        raise NoGradientError(f"PyTorch cannot differentiate the loss: {error}") from error
    if not (found.isfinite() and are_finite(gradient)):
        return [inf], torch.zeros_like(gradient)
    return [float(found.detach())], gradient


def called(function: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401 (of any function)
    """Calls a function without recording derivatives, or with that where it takes some on its way."""
    try:
        with torch.no_grad():
            return function(*arguments)
    except RuntimeError:
        with torch.enable_grad():
            return function(*arguments)


def are_finite(numbers: Tensor) -> bool:
    """Whether all numbers are finite, which a finite sum shows faster than an answer for each."""
    return bool(numbers.sum().isfinite()) or bool(numbers.isfinite().all())
