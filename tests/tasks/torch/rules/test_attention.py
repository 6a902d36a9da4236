from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from fedlearn.tasks.torch.members.mode import Perturbed, name_of

Losses = Callable[..., tuple[Tensor, Tensor, Perturbed]]


def attend(model: nn.Module, x: Tensor, **more: Any) -> Tensor:  # noqa: ANN401
    """Attention of two heads; x [..., length, 8]."""
    q, k, v = (y.unflatten(-1, (2, 4)).transpose(-2, -3) for y in model(x).chunk(3, -1))
    return F.scaled_dot_product_attention(q, k, v, **more)


MASKS = {
    "none": None,
    "of all": torch.ones(5, 5).tril().bool(),
    "of heads": torch.randn(2, 5, 5),
    "of texts": torch.randn(3, 1, 5, 5),
    "of texts and heads": torch.randn(3, 2, 5, 5),
    "one": torch.randn(1, 1, 5, 5),
}


@pytest.mark.parametrize("mask", MASKS)
def test_attention_of_all_members_is_that_of_each(mask: str, losses: Losses) -> None:
    x = torch.randn(3, 5, 8)
    at_once, alone, mode = losses(nn.Linear(8, 24), lambda m, x: attend(m, x, attn_mask=MASKS[mask]), x)
    torch.testing.assert_close(at_once, alone)
    assert "scaled_dot_product_attention" in {name_of(function) for function in mode.by_rule}


@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 5, 8)])
def test_attention_takes_any_number_of_leading_dimensions(shape: tuple[int, ...], losses: Losses) -> None:
    at_once, alone, _ = losses(
        nn.Linear(8, 24), lambda m, x: attend(m, x, is_causal=True, scale=0.3), torch.randn(shape)
    )
    torch.testing.assert_close(at_once, alone)


def test_a_mask_that_members_computed_is_their_own(losses: Losses) -> None:
    at_once, alone, _ = losses(
        nn.Linear(8, 24), lambda m, x: attend(m, x, attn_mask=m(x)[:, None, :, :5]), torch.randn(3, 5, 8)
    )
    torch.testing.assert_close(at_once, alone)


def test_few_heads_of_keys_serve_many_of_queries(losses: Losses) -> None:
    def grouped(model: nn.Module, x: Tensor) -> Tensor:
        q, kv = model(x).split((16, 8), -1)
        k, v = kv.chunk(2, -1)
        q, k, v = (y.unflatten(-1, (-1, 4)).transpose(1, 2) for y in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    at_once, alone, _ = losses(nn.Linear(8, 24), grouped, torch.randn(3, 5, 8))
    torch.testing.assert_close(at_once, alone)


def test_values_shared_by_members_are_repeated(losses: Losses) -> None:
    def function(model: nn.Module, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(model(x), x, x)

    at_once, alone, _ = losses(nn.Linear(8, 8), function, torch.randn(3, 5, 8))
    torch.testing.assert_close(at_once, alone)


@pytest.mark.parametrize(
    "more",
    [
        {"average_attn_weights": False},
        {"need_weights": False},
        {"attn_mask": torch.randn(6, 5, 5)},
        {"attn_mask": torch.ones(5, 5).triu(1).bool(), "need_weights": False},
        {"key_padding_mask": torch.tensor([[0, 0, 0, 0, 1]] * 3).bool(), "need_weights": False},
        {"key_padding_mask": torch.tensor([[0.0, 0, 0, -1, -2]] * 3), "attn_mask": torch.randn(5, 5)},
    ],
)
def test_attention_layers_keep_their_options(more: dict[str, Any], losses: Losses) -> None:
    def function(model: nn.Module, x: Tensor) -> Tensor:
        y, weights = model(x, x.flip(0), x + 1, **more)
        return torch.cat((y.flatten(), torch.zeros(0) if weights is None else weights.flatten()))

    at_once, alone, mode = losses(nn.MultiheadAttention(8, 2), function, torch.randn(5, 3, 8))
    torch.testing.assert_close(at_once, alone)
    assert not mode.by_tensor


@pytest.mark.parametrize(
    "more", [{"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 6, "vdim": 6}, {"bias": False}]
)
def test_rare_attention_layers_are_right(more: dict[str, Any], losses: Losses) -> None:
    def function(model: nn.Module, x: Tensor) -> Tensor:
        other = x[..., : more.get("kdim", 8)]
        y: Tensor = model(x, other, other)[0]
        return y

    for shape in ((5, 3, 8), (5, 8)):
        at_once, alone, _ = losses(nn.MultiheadAttention(8, 2, **more), function, torch.randn(shape))
        torch.testing.assert_close(at_once, alone)


@pytest.mark.parametrize("need_weights", [True, False])
def test_members_drop_the_same_scores(need_weights: bool, losses: Losses) -> None:
    def function(model: nn.Module, x: Tensor) -> Tensor:
        torch.manual_seed(3)
        y: Tensor = model(x, x, x, need_weights=need_weights)[0]
        return y

    at_once, alone, _ = losses(nn.MultiheadAttention(8, 2, dropout=0.4), function, torch.randn(5, 3, 8))
    torch.testing.assert_close(at_once, alone)
