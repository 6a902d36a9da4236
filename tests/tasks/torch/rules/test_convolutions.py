from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedlearn.tasks.torch.members.mode import Perturbed

Losses = Callable[..., tuple[Tensor, Tensor, Perturbed]]


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Conv1d(3, 4, 3, stride=2, padding=1), (2, 3, 9)),
        (lambda: nn.Conv2d(3, 4, 3, padding="same", dilation=2), (2, 3, 7, 6)),
        (lambda: nn.Conv2d(1, 4, (3, 2), bias=False), (1, 1, 7, 6)),
        (lambda: nn.Conv3d(2, 3, 2), (2, 2, 3, 4, 5)),
        (lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), (2, 3, 7, 6)),
    ],
)
def test_images_that_members_share_are_convolved_once(
    make: Callable[[], nn.Module], shape: tuple[int, ...], rank: int, losses: Losses
) -> None:
    at_once, alone, mode = losses(make(), lambda m, x: m(x), torch.randn(shape), rank=rank)
    torch.testing.assert_close(at_once, alone)
    assert not mode.by_tensor


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 3)), (2, 3, 7, 6)),
        (nn.Conv2d(4, 4, 3, groups=2), (2, 4, 7, 6)),
        (nn.Conv2d(3, 4, 3), (3, 7, 6)),
    ],
)
def test_everything_else_is_convolved_with_own_kernels(model: nn.Module, shape: Any, losses: Losses) -> None:  # noqa: ANN401
    at_once, alone, mode = losses(model, lambda m, x: m(x), torch.randn(shape))
    torch.testing.assert_close(at_once, alone)
    assert mode.by_tensor


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Conv1d(24, 32, 3, stride=2, padding=2), (2, 24, 5)),
        (lambda: nn.Conv1d(24, 32, 3, padding=2, dilation=2, bias=False), (2, 24, 5)),
        (lambda: nn.Conv2d(24, 32, (3, 2), stride=(2, 1), padding=(0, 1), dilation=(1, 2)), (2, 24, 5, 4)),
        (lambda: nn.Conv3d(24, 32, 2, stride=2, padding=1), (1, 24, 2, 3, 2)),
        (lambda: nn.Conv2d(64, 96, 1), (2, 64, 3, 3)),
    ],
)
def test_kernels_larger_than_images_are_shared_and_corrected(
    make: Callable[[], nn.Module], shape: tuple[int, ...], rank: int, losses: Losses
) -> None:
    # Images are members' own behind a norm whose weights are.
    model = nn.Sequential(nn.GroupNorm(1, shape[1]), make())
    at_once, alone, mode = losses(model, lambda m, x: m(x), torch.randn(shape), rank=rank)
    torch.testing.assert_close(at_once, alone)
    assert not mode.by_tensor
