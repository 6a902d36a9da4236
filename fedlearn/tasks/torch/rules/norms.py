"""Rules for layer normalization and cross-entropy, which vmap would split into more passes over the values."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from fedlearn.tasks.torch.members.mode import Perturbed, Rules
from fedlearn.tasks.torch.members.noise import Shift


def _layer_norm(
    mode: Perturbed,
    _: object,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:  # noqa: ANN401
    view, scale, shift = mode.view, mode.noise_of(weight), mode.noise_of(bias)
    if not isinstance(scale, Shift) or not isinstance(shift, Shift) or not view.can_unwrap(input) or mode.holds(input):
        return NotImplemented
    assert weight is not None
    assert bias is not None
    shape = (view.n_members, *(1,) * (input.dim() - weight.dim()), *weight.shape)
    scales, shifts = scale.added_to(weight).view(shape), shift.added_to(bias).view(shape)
    # PyTorch is half as fast without weights, so there are ones and zeros.
    ones, zeros = torch.ones_like(weight), torch.zeros_like(bias)
    normal = F.layer_norm(view.all(input) if view.is_batched(input) else input, normalized_shape, ones, zeros, eps)
    # The result may overwrite `normal` where each member has values of its own.
    return view.one(torch.addcmul(shifts, normal, scales, out=normal if view.is_batched(input) else None))


def _cross_entropy(
    mode: Perturbed,
    _: object,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:  # noqa: ANN401
    view = mode.view
    is_plain = weight is None and size_average is None and reduce is None and label_smoothing == 0.0
    if not is_plain or target.is_floating_point() or input.dim() != 2 or mode.holds(input, target):
        return NotImplemented
    if not view.can_unwrap(input, target) or not view.is_batched(input):
        return NotImplemented
    targets = view.all(target)
    nats = F.cross_entropy(
        view.all(input).flatten(0, 1), targets.reshape(-1), ignore_index=ignore_index, reduction="none"
    ).view(targets.shape)
    if reduction == "none":
        return view.one(nats)
    sums = nats.sum(1)
    return view.one(sums if reduction == "sum" else sums / (targets != ignore_index).sum(1))


RULES: Rules = {F.layer_norm: _layer_norm, F.cross_entropy: _cross_entropy}
