"""Rules for products, look-ups and views, which compute with a perturbed matrix without making it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from fedlearn.tasks.torch.members.mode import Perturbed, Rules, getter
from fedlearn.tasks.torch.rules.products import product


def _linear(mode: Perturbed, _: object, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:  # noqa: ANN401
    factors = mode.factors(weight)
    if factors is None or mode.holds(input) or weight.dim() != 2:
        return NotImplemented
    return product(mode, input, weight, bias, factors)


def _matmul(mode: Perturbed, _: object, input: Tensor, other: Tensor) -> Any:  # noqa: ANN401
    if not isinstance(other, Tensor) or mode.holds(input) == mode.holds(other):
        return NotImplemented
    right = mode.factors(other)
    if right is not None and other.dim() == 2:
        return product(mode, input, other.t(), None, right.transposed())
    left = mode.factors(input)
    if left is None or input.dim() != 2:
        return NotImplemented
    if other.dim() == 1:
        return product(mode, other, input, None, left)
    return product(mode, other.mT, input, None, left).mT


def _addmm(
    mode: Perturbed, _: object, input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Any:  # noqa: ANN401
    factors = mode.factors(mat2)
    if factors is None or mode.holds(mat1) or beta != 1 or alpha != 1:
        return NotImplemented
    if input.dim() == 1:
        return product(mode, mat1, mat2.t(), input, factors.transposed())
    return product(mode, mat1, mat2.t(), None, factors.transposed()) + mode.perturbed(input)


def _embedding(
    mode: Perturbed,
    _: object,
    input: Tensor,
    weight: Tensor,
    padding_idx: object = None,  # noqa: ARG001
    max_norm: float | None = None,
    *_ignored: object,
    **__: object,
) -> Any:  # noqa: ANN401
    factors = mode.factors(weight)
    if factors is None or max_norm is not None or mode.holds(input):
        return NotImplemented
    shared, rank = F.embedding(input, weight), factors.rows.shape[-1]
    view = mode.view
    if not view.can_unwrap(input):
        return shared + view.one(factors.rows)[input] @ view.one(factors.columns).mT
    n, ids = view.n_members, view.all(input).reshape(view.n_members, -1)
    rows, columns = factors.rows.gather(1, ids[..., None].expand(-1, -1, rank)), factors.columns.mT
    base = view.all(shared).reshape(n, -1, weight.shape[1])
    looked_up = torch.addcmul(base, rows, columns) if rank == 1 else torch.baddbmm(base, rows, columns)
    return view.one(looked_up.view(n, *input.shape, weight.shape[1]))


def _transpose(mode: Perturbed, _: object, x: Tensor, *dims: Any, **names: object) -> Any:  # noqa: ANN401
    factors = mode.factors(x)
    if factors is None or x.dim() != 2 or names or (dims and sorted(d % 2 for d in dims) != [0, 1]):
        return NotImplemented
    return mode.stand_in(x.t(), factors.transposed())


def _unchanged(mode: Perturbed, function: Any, x: Any, *args: object, **kwargs: object) -> Any:  # noqa: ANN401
    noise = mode.noise_of(x)
    if noise is None:
        return NotImplemented
    view = function(x, *args, **kwargs)
    is_same = view.dtype == x.dtype and view.shape == x.shape and view.device == x.device
    return mode.stand_in(view, noise) if is_same else NotImplemented


_PRODUCTS: tuple[Callable[..., Any], ...] = (
    torch.matmul,
    torch.mm,
    torch.mv,
    Tensor.matmul,
    Tensor.__matmul__,
    Tensor.mm,
    Tensor.mv,
)
_TRANSPOSES: tuple[Callable[..., Any], ...] = (
    torch.t, Tensor.t, torch.transpose, Tensor.transpose, torch.swapaxes, Tensor.swapaxes, torch.adjoint,
    *map(getter, ("T", "mT")),
)  # fmt: skip
_SAME: tuple[Callable[..., Any], ...] = (
    Tensor.to, Tensor.float, Tensor.contiguous, Tensor.type_as, Tensor.detach, torch.detach, getter("data"),
    Tensor.cpu, Tensor.cuda,
)  # fmt: skip

RULES: Rules = {
    F.linear: _linear,
    **dict.fromkeys(_PRODUCTS, _matmul),
    torch.addmm: _addmm,
    Tensor.addmm: _addmm,
    F.embedding: _embedding,
    **dict.fromkeys(_TRANSPOSES, _transpose),
    **dict.fromkeys(_SAME, _unchanged),
}
