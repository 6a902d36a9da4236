"""Zeros and ones by chance, as dropout draws them, that are the same on every machine.

PyTorch's own depend on the kind of processor, so that another machine could not repeat them in an audit, and take more
than ten times as long. These follow from a number of the processor's generator, whose numbers are the same everywhere.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import es_core

MAX_SEED = 2**63 - 1


def dropout_mask(shape: Sequence[int], kept: float, seed: int | None = None) -> Tensor:
    """Factors of dropout, float32 in this shape: one over `kept` with that probability, else 0.

    They follow from the seed, or from one that is drawn.
    """
    if seed is None:
        seed = int(torch.randint(MAX_SEED, ()))
    return torch.from_numpy(es_core.dropout_mask(seed, prod(shape), kept)).view(*shape)


def dropout(input: Tensor, p: float, mask: Tensor | None = None) -> Tensor:
    """The input with each number zeroed with the probability `p`, and the others divided by that of staying; by a
    `mask` of such factors if there is one.

    Raises:
        RuntimeError: `p` is no probability, as of PyTorch's own.
    """
    if not 0.0 <= p <= 1.0:
        raise RuntimeError(f"dropout: expected a probability from 0 to 1, got {p}")
    if mask is None:
        mask = torch.empty_like(input) if input.is_meta else dropout_mask(input.shape, 1 - p)
    return input * mask.to(input.device, torch.result_type(input, 1.0))


def bernoulli(like: Tensor, p: float | Tensor) -> Tensor:
    """Zeros and ones in the shape, in the dtype and on the device of `like`; ones have the probability `p`."""
    if like.is_meta:
        return torch.zeros_like(like)
    if isinstance(p, float):
        return (dropout_mask(like.shape, p) != 0).to(like.device, like.dtype)
    drawn = torch.rand(like.shape, dtype=torch.float32)
    return (drawn.to(like.device) < p).to(like.dtype)


def _native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    if train is False:
        return input.clone(), torch.ones_like(input, dtype=torch.bool)
    mask = dropout_mask(input.shape, 1 - p)
    return dropout(input, p, mask), (mask != 0).to(input.device)


_aten = torch.ops.aten

_DRAWN: Mapping[Any, Callable[..., Any]] = {
    _aten.bernoulli.default: lambda p: bernoulli(p, p),
    _aten.bernoulli.p: bernoulli,
    _aten.bernoulli_.Tensor: lambda self, p: self.copy_(bernoulli(self, p)),
    _aten.bernoulli_.float: lambda self, p=0.5: self.copy_(bernoulli(self, p)),
    _aten.native_dropout.default: _native_dropout,
}


@final
class PortableDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode in which PyTorch's zeros and ones by chance, and with them its dropout, are those of `bernoulli`.

    It sees each of PyTorch's operations, of which it makes one take 20 microseconds longer.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.has_drawn = False
        """Whether the mode has drawn anything."""

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 (whatever the function gives)
        drawn = _DRAWN.get(function)
        if drawn is None or (kwargs and kwargs.get("generator") is not None):
            return function(*args, **(kwargs or {}))
        self.has_drawn = True
        return drawn(*args)
