from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from fedlearn.tasks.torch.members.mode import Perturbed

Losses = Callable[..., tuple[Tensor, Tensor, Perturbed]]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_given_states_are_gone_on_from(kind: Callable[..., nn.Module], losses: Losses) -> None:
    def function(model: nn.Module, x: Tensor, start: Tensor) -> Tensor:
        y, end = model(x, (start, start + 1) if kind is nn.LSTM else start)
        ends = end if isinstance(end, tuple) else (end,)
        return torch.cat([part.flatten() for part in (y, *ends)])

    at_once, alone, mode = losses(kind(4, 6, num_layers=2), function, torch.randn(5, 3, 4), torch.randn(2, 3, 6))
    torch.testing.assert_close(at_once, alone)
    assert not mode.by_tensor


def test_a_sequence_without_texts_is_right(losses: Losses) -> None:
    at_once, alone, _ = losses(nn.GRU(4, 6), lambda m, x: m(x)[0], torch.randn(5, 4))
    torch.testing.assert_close(at_once, alone)


@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l0", "bias_hh_l0"])
def test_parts_of_a_layer_may_be_frozen(name: str, losses: Losses) -> None:
    model = nn.LSTM(4, 6)
    getattr(model, name).requires_grad_(False)
    at_once, alone, _ = losses(model, lambda m, x: m(x)[0], torch.randn(5, 3, 4))
    torch.testing.assert_close(at_once, alone)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_packed_sequences_are_left_to_vmap_which_has_no_rule(kind: Callable[..., nn.Module], losses: Losses) -> None:
    def packed(model: nn.Module, x: Tensor) -> Tensor:
        y: Tensor = model(pack_padded_sequence(x, torch.tensor([5, 4, 2])))[0].data
        return y

    with pytest.raises(RuntimeError, match="Batching rule not implemented"):
        losses(kind(4, 6), packed, torch.randn(5, 3, 4))


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_projections_are_left_to_vmap_which_has_no_rule(losses: Losses) -> None:
    with pytest.raises(RuntimeError, match="Batching rule not implemented"):
        losses(nn.LSTM(4, 6, proj_size=2), lambda m, x: m(x)[0], torch.randn(5, 3, 4))


def test_dropout_between_layers_is_left_to_vmap_which_has_no_rule(losses: Losses) -> None:
    with pytest.raises(RuntimeError, match="Batching rule not implemented"):
        losses(nn.GRU(4, 6, num_layers=2, dropout=0.5), lambda m, x: m(x)[0], torch.randn(5, 3, 4))
    losses(nn.GRU(4, 6, num_layers=2, dropout=0.5).eval(), lambda m, x: m(x)[0], torch.randn(5, 3, 4))
