"""Our RNN of one layer in PyTorch, for one set of weights or for many members side by side."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from fedlearn.es.layout import ParameterLayout

Parameters = Mapping[str, Tensor]
"""Each tensor of the layout, [members, *shape]."""


def split(flat: Tensor, layout: ParameterLayout) -> dict[str, Tensor]:
    """Views of `flat` [members, n_parameters] by name."""
    return {
        tensor.name: flat[:, offset : offset + tensor.size].view(len(flat), *tensor.shape)
        for tensor, offset in zip(layout.tensors, layout.offsets, strict=True)
    }


def initial_states(parameters: Parameters, n_windows: int) -> Tensor:
    """[members, windows, hidden] before any token."""
    return parameters["initial_state"].unsqueeze(1).expand(-1, n_windows, -1)


def read(parameters: Parameters, tokens: Tensor, state: Tensor) -> Tensor:
    """States [members, windows, T, hidden] after each of `tokens` [windows, T], from `state` before them.

    All members read the same windows.
    """
    inputs = parameters["embedding.weight"][:, tokens] + parameters["rnn.bias_l0"][:, None, None]
    recurrent = parameters["rnn.weight_hh_l0"].transpose(1, 2)
    states = []
    for t in range(tokens.shape[1]):
        state = torch.baddbmm(inputs[:, :, t], state, recurrent).tanh()
        states.append(state)
    return torch.stack(states, dim=2)


def losses(parameters: Parameters, tokens: Tensor, state: Tensor) -> Tensor:
    """Mean nats per token of each member, [members], on `tokens` [windows, T + 1]."""
    states = read(parameters, tokens[:, :-1], state).flatten(1, 2)
    logits = torch.baddbmm(parameters["head.bias"].unsqueeze(1), states, parameters["head.weight"].transpose(1, 2))
    targets = tokens[:, 1:].flatten().expand(len(logits), -1)
    nats = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return nats.view(len(logits), -1).mean(1)


def warm_states(parameters: Parameters, context: Tensor) -> Tensor:
    """[windows, hidden] after `context` [windows, C] under one member's weights, without gradient."""
    with torch.no_grad():
        state = initial_states(parameters, len(context))
        return (read(parameters, context, state)[:, :, -1] if context.shape[1] else state)[0]


def starting_states(parameters: Parameters, warm: Tensor, is_cold: Tensor) -> Tensor:
    """[members, windows, hidden]: `warm` [windows, hidden], or where `is_cold` each member's own initial state."""
    return torch.where(is_cold[:, None], initial_states(parameters, len(warm)), warm)
