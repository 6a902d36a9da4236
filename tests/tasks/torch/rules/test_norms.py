from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from fedlearn.tasks.torch.members.mode import Perturbed, name_of

Losses = Callable[..., tuple[Tensor, Tensor, Perturbed]]

TARGETS = torch.tensor([1, 0, -100, 2, 1])


@pytest.mark.parametrize("more", [{}, {"reduction": "sum"}, {"ignore_index": 1}, {"reduction": "none"}])
def test_cross_entropy_is_taken_for_all_members_at_once(more: dict[str, Any], losses: Losses) -> None:
    targets = TARGETS.clamp_min(0) if "ignore_index" in more else TARGETS
    x = torch.randn(5, 6)
    at_once, alone, mode = losses(nn.Linear(6, 3), lambda m, x, y: F.cross_entropy(m(x), y, **more), x, targets)
    torch.testing.assert_close(at_once, alone)
    assert "cross_entropy" in {name_of(function) for function in mode.by_rule}


@pytest.mark.parametrize("more", [{"label_smoothing": 0.1}, {"weight": torch.tensor([1.0, 2.0, 3.0])}])
def test_what_cross_entropy_rarely_does_is_left_to_vmap(more: dict[str, Any], losses: Losses) -> None:
    x = torch.randn(5, 6)
    at_once, alone, mode = losses(nn.Linear(6, 3), lambda m, x, y: F.cross_entropy(m(x), y, **more), x, TARGETS)
    torch.testing.assert_close(at_once, alone)
    assert "cross_entropy" not in {name_of(function) for function in mode.by_rule}


def test_cross_entropy_with_shares_as_targets_is_right(losses: Losses) -> None:
    x, shares = torch.randn(5, 6), torch.rand(5, 3)
    at_once, alone, _ = losses(nn.Linear(6, 3), lambda m, x, y: F.cross_entropy(m(x), y), x, shares)
    torch.testing.assert_close(at_once, alone)


def test_cross_entropy_of_one_row_or_of_maps_is_right(losses: Losses) -> None:
    for x, targets in ((torch.randn(6), torch.tensor(2)), (torch.randn(2, 4, 6), torch.tensor([[0, 1, 2, 0]] * 2))):
        at_once, alone, _ = losses(
            nn.Linear(6, 3), lambda m, x, y: F.cross_entropy(m(x).movedim(-1, 1 if x.dim() > 1 else 0), y), x, targets
        )
        torch.testing.assert_close(at_once, alone)


@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 6)])
def test_layer_norm_takes_each_members_scale_and_shift(shape: tuple[int, ...], losses: Losses) -> None:
    x = torch.randn(shape)
    model = nn.Sequential(nn.LayerNorm(6, eps=0.3), nn.Linear(6, 6), nn.LayerNorm(6))
    at_once, alone, mode = losses(model, lambda m, x: m(x), x)
    torch.testing.assert_close(at_once, alone)
    assert "layer_norm" in {name_of(function) for function in mode.by_rule}


def test_layer_norm_leaves_its_input_as_it_was(losses: Losses) -> None:
    linear, norm = nn.Linear(6, 6), nn.LayerNorm(6)

    def function(_: nn.Module, x: Tensor) -> Tensor:
        y = linear(x)
        total: Tensor = norm(y) + y
        return total

    at_once, alone, _ = losses(nn.Sequential(linear, norm), function, torch.randn(4, 6))
    torch.testing.assert_close(at_once, alone)


def test_layer_norm_over_more_dimensions_is_right(losses: Losses) -> None:
    at_once, alone, _ = losses(nn.LayerNorm((3, 6)), lambda m, x: m(x), torch.randn(2, 3, 6))
    torch.testing.assert_close(at_once, alone)
    no_bias = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6, bias=False), nn.LayerNorm(6, elementwise_affine=False))
    at_once, alone, _ = losses(no_bias, lambda m, x: m(x), torch.randn(2, 6))
    torch.testing.assert_close(at_once, alone)
