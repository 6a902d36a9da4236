"""Zeros and ones by chance, as dropout draws them, that are the same on every machine.

PyTorch's own depend on the kind of processor, so that another machine could not repeat them in an audit. These come
from the generator of the processor, whose numbers are the same everywhere.
"""

from collections.abc import Callable, Mapping
from typing import Any, final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


def bernoulli(like: Tensor, p: float | Tensor) -> Tensor:
    """Zeros and ones in the shape, in the dtype and on the device of `like`; ones have the probability `p`."""
    if like.is_meta:
        return torch.zeros_like(like)
    drawn = torch.rand(like.shape, dtype=torch.float32)
    return (drawn.to(like.device) < p).to(like.dtype)


def dropout(input: Tensor, p: float) -> Tensor:
    """The input with each number zeroed with the probability `p`, and the others divided by that of staying."""
    return input * bernoulli(input, 1 - p) * _scale(p)


def _scale(p: float) -> float:
    return 1 / (1 - p) if p < 1 else 0.0


def _native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    if train is False:
        return input.clone(), torch.ones_like(input, dtype=torch.bool)
    kept = bernoulli(input, 1 - p)
    return input * kept * _scale(p), kept.bool()


_aten = torch.ops.aten

BERNOULLI: Mapping[Any, Callable[..., Any]] = {
    _aten.bernoulli.default: lambda p: bernoulli(p, p),
    _aten.bernoulli.p: bernoulli,
}
"""The operators that give zeros and ones by chance, by functions that do so."""

_DRAWN: Mapping[Any, Callable[..., Any]] = {
    **BERNOULLI,
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
