"""The gradient of one loss by PyTorch, also where layers are computed again on the way back (checkpointing)."""

from collections.abc import Callable, Iterable, Sequence
from typing import final

import torch
from torch import Tensor


@final
class Backward:
    """The way to the gradients of a task's losses, which is found with the first of them.

    `torch.autograd.grad` computes the gradients of the parameters alone and leaves each `.grad` as it is. A reentrant
    checkpoint, which `torch.utils.checkpoint` makes unless it is told otherwise, hides what it computes in a graph of
    its own, which only `backward()` reaches. That takes as long.
    """

    def __init__(self, leaves: Callable[[], Iterable[Tensor]] = tuple) -> None:
        """`leaves` gives tensors that a loss may depend on besides the parameters, whose `.grad` is left, too."""
        self._leaves = leaves
        self._has_checkpoint: bool | None = None
        """Whether a loss has a reentrant checkpoint; None before the first loss."""

    def gradient(self, loss: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """The gradient as one vector; zeros for parameters on which the loss does not depend."""
        if self._has_checkpoint is None:
            self._has_checkpoint = _has_checkpoint(loss)
        if self._has_checkpoint:
            parts = _accumulated(loss, parameters, [*parameters, *self._leaves()])
        else:
            parts = torch.autograd.grad(loss, parameters, allow_unused=True)
        whole = [
            (torch.zeros_like(parameter) if part is None else part.to_dense() if part.is_sparse else part).reshape(-1)
            for part, parameter in zip(parts, parameters, strict=True)
        ]
        return torch.cat(whole)


def _accumulated(loss: Tensor, parameters: Sequence[Tensor], leaves: Iterable[Tensor]) -> Sequence[Tensor | None]:
    """The parts of the gradient by `backward()`, after which each `.grad` is what it was before."""
    before = [(leaf, leaf.grad) for leaf in leaves]
    for leaf, _ in before:
        leaf.grad = None
    try:
        loss.backward()  # type: ignore[no-untyped-call]
        return [parameter.grad for parameter in parameters]
    finally:
        # The parameters come twice, and what they had at first is written last.
        for leaf, gradient in before:
            leaf.grad = gradient


def _has_checkpoint(loss: Tensor) -> bool:
    """Whether a function that calls itself a checkpoint, as those of other libraries do, leads to the loss."""
    seen, left = set(), [loss.grad_fn]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        if "checkpoint" in node.name().lower():
            return True
        seen.add(node)
        left += [following for following, _ in node.next_functions]
    return False
