"""The rule for convolutions of what all members share, such as the images themselves.

    (W + R C^T) * x = W * x + R (C^T * x)

The unperturbed convolution is computed once, and each member adds that of one filter per rank. In later layers each
member has images of its own. There a grouped convolution with members' own kernels, which vmap makes, is as fast as the
unperturbed one, and a correction would cost a second convolution that is no cheaper.
"""

from typing import Any

import torch
from torch import Tensor

from fedlearn.tasks.torch.mode import Perturbed, Rules

Sizes = int | str | tuple[int, ...]


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
    factors, sight = mode.factors(weight), mode.sight
    is_shared = sight.reaches(input) and not sight.is_apart(input) and not mode.holds(input)
    if factors is None or groups != 1 or not is_shared or input.dim() != weight.dim():
        return NotImplemented
    n_members, n_filters, rank = factors.rows.shape
    filters = factors.columns.mT.reshape(n_members * rank, *weight.shape[1:])
    answers = function(input, filters, None, stride, padding, dilation).transpose(0, 1)
    shared = function(input, weight, None, stride, padding, dilation).transpose(0, 1)
    # A row of a matrix for each place: [members, filters, rank] [members, rank, texts * places].
    product = torch.baddbmm(
        shared.reshape(n_filters, -1).expand(n_members, -1, -1), factors.rows, answers.reshape(n_members, rank, -1)
    )
    images = product.view(n_members, *shared.shape).transpose(1, 2)
    if bias is None:
        return sight.one(images)
    return sight.one(images) + mode.perturbed(bias).view(-1, *(1,) * (weight.dim() - 2))


RULES: Rules = {torch.conv1d: _convolution, torch.conv2d: _convolution, torch.conv3d: _convolution}
