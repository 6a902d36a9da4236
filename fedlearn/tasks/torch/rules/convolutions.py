"""The rule for convolutions, in which a kernel is a matrix with a row for each filter.

    (W + R C^T) * x = W * x + R (C^T * x)

For images that all members share, such as the data themselves, W * x is computed once, and each member adds the
convolution with one filter per rank. In later layers each member has images of its own. Then W * x is one convolution
of all of them, but the correction is a pass over all images and outputs. If a kernel holds fewer numbers than these, a
grouped convolution with members' own kernels, which vmap makes, is faster.
"""

from collections.abc import Sequence
from itertools import product as all_of
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from fedlearn.tasks.torch.members.mode import Perturbed, Rules
from fedlearn.tasks.torch.members.noise import Factors
from fedlearn.tasks.torch.rules.products import every

Sizes = int | str | Sequence[int]


def _convolution(
    mode: Perturbed,
    function: Any,  # noqa: ANN401 (one of three)
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Any:  # noqa: ANN401 (or NotImplemented)
    factors, view = mode.factors(weight), mode.view
    is_plain = groups == 1 and input.dim() == weight.dim() and not mode.holds(input)
    if factors is None or not is_plain or not view.can_unwrap(input):
        return NotImplemented
    more = (stride, padding, dilation)
    if not view.is_batched(input):
        return _of_shared(mode, function, input, weight, bias, factors, more)
    with_shapes = (torch.empty(x.shape, device="meta") for x in (input, weight))
    n_answers = function(*with_shapes, None, *more).numel()
    n_taps = input.numel() // input.shape[1] * weight[0, 0].numel()
    if isinstance(padding, str) or weight.numel() < input.numel() + n_answers + n_taps:
        return NotImplemented
    return view.one(_corrected(mode, function, view.all(input), weight, bias, factors, more))


def _of_shared(
    mode: Perturbed,
    function: Any,  # noqa: ANN401
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    factors: Factors,
    more: Sequence[Any],
) -> Tensor:
    """Outputs for images [texts, channels, ...] that all members share, as vmap shows them."""
    n_members, n_filters, rank = factors.rows.shape
    filters = factors.columns.mT.reshape(n_members * rank, *weight.shape[1:])
    answers = function(input, filters, None, *more).transpose(0, 1)
    shared = function(input, weight, None, *more).transpose(0, 1)
    # Each position is a column of a matrix: [members, filters, rank] [members, rank, texts * positions].
    product = torch.baddbmm(
        shared.reshape(n_filters, -1).expand(n_members, -1, -1), factors.rows, answers.reshape(n_members, rank, -1)
    )
    images = mode.view.one(product.view(n_members, *shared.shape).transpose(1, 2))
    return images if bias is None else images + mode.perturbed(bias).view(-1, *(1,) * (weight.dim() - 2))


def _corrected(
    mode: Perturbed,
    function: Any,  # noqa: ANN401
    images: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    factors: Factors,
    more: Sequence[Any],
) -> Tensor:
    """Outputs [members, texts, filters, ...] for members' own images [members, texts, channels, ...]."""
    n_members, n_texts, n_channels, *sides = images.shape
    shared = function(images.flatten(0, 1), weight, None, *more)
    y: Tensor = shared.view(n_members, n_texts, len(weight), -1)
    columns, rank = factors.columns.view(n_members, n_channels, -1), factors.columns.shape[2]
    # Products of each position of a filter with each position of an image, [members, texts, taps * rank, positions].
    taps = columns.mT[:, None] @ images.flatten(3)
    dots = _summed(taps.view(n_members * n_texts, -1, rank, *sides), weight.shape[2:], shared.shape[2:], *more)
    rows = factors.rows[:, None]
    dots = dots.reshape(n_members, n_texts, rank, -1)
    y = y.addcmul_(rows, dots) if rank == 1 else y.add_(rows @ dots)
    if bias is not None:
        y.add_(every(mode, bias)[:, None, :, None])
    return y.view(n_members, n_texts, *shared.shape[1:])


def _summed(
    taps: Tensor, kernel: Sequence[int], answers: Sequence[int], stride: Sizes, padding: Sizes, dilation: Sizes
) -> Tensor:
    """The sum over a filter's positions, each shifted to its output: [..., rank, *outputs] from [..., taps, rank,
    *]."""
    n = len(kernel)
    strides, pads, dilations = (_sizes(one, n) for one in (stride, padding, dilation))
    padded = F.pad(taps, [pad for side in reversed(pads) for pad in (side, side)])
    total = taps.new_zeros(len(taps), taps.shape[2], *answers)
    for number, place in enumerate(all_of(*map(range, kernel))):
        index: list[slice] = [slice(None)] * 2
        for at, gap, length, step in zip(place, dilations, answers, strides, strict=True):
            index.append(slice(at * gap, at * gap + (length - 1) * step + 1, step))
        total += padded[:, number][tuple(index)]
    return total


def _sizes(given: Sizes, n: int) -> tuple[int, ...]:
    """One number for each of `n` dimensions."""
    if isinstance(given, int):
        return (given,) * n
    assert not isinstance(given, str)
    return tuple(given) * (n // len(given))


RULES: Rules = {torch.conv1d: _convolution, torch.conv2d: _convolution, torch.conv3d: _convolution}
