"""Rules for recurrent layers, for which vmap has none: one step of all members at a time."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fedlearn.tasks.torch.mode import Perturbed, Rules
from fedlearn.tasks.torch.products import Layer
from fedlearn.tasks.torch.refusals import refuse_randomness

State = tuple[Tensor, ...]
"""What a layer hands from step to step, [members, texts, hidden] each; the first is its output."""
Cell = Callable[[Tensor, Layer, State], State]
"""Gives the next state from the input's part of the gates, the layer of the state's matrix, and the state."""


def _parts(gates: Tensor, count: int) -> Tensor:
    """[count, members, texts, hidden] contiguous, since sigmoids of split rows take ten times as long."""
    return gates.view(*gates.shape[:2], count, -1).movedim(2, 0).contiguous()


def _lstm(gates: Tensor, recur: Layer, state: State) -> State:
    i, f, g, o = _parts(recur.add_to(gates, state[0]), 4)
    cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def _gru(gates: Tensor, recur: Layer, state: State) -> State:
    (r, z, n), (state_r, state_z, state_n) = _parts(gates, 3), _parts(recur(state[0]), 3)
    update = (z + state_z).sigmoid()
    return (torch.lerp((n + (r + state_r).sigmoid() * state_n).tanh(), state[0], update),)


def _tanh(gates: Tensor, recur: Layer, state: State) -> State:
    return (recur.add_to(gates, state[0]).tanh(),)


def _relu(gates: Tensor, recur: Layer, state: State) -> State:
    return (recur.add_to(gates, state[0]).relu(),)


def _layers(cell: Cell) -> Callable[..., Any]:
    """The rule for a function like `torch.lstm`, which runs all layers and both directions."""

    def rule(mode: Perturbed, _: object, input: Tensor, hx: Any, weights: Any, *more: Any) -> Any:  # noqa: ANN401
        # A packed sequence has a tensor of lengths as its second argument, and everything else one place later.
        if not isinstance(weights, list | tuple) or len(more) != 6:
            return NotImplemented
        has_bias, n_layers, dropout, is_training, is_bidirectional, is_batch_first = more
        if dropout > 0 and is_training and n_layers > 1:
            refuse_randomness("dropout between recurrent layers in training mode")
        starts = hx if isinstance(hx, list | tuple) else (hx,)
        n_weights, n_directions = 4 if has_bias else 2, 2 if is_bidirectional else 1
        if len(weights) != n_weights * n_directions * n_layers or not mode.sight.reaches(input, *starts):
            return NotImplemented
        x = mode.sight.all(input)
        x = x.transpose(1, 2) if is_batch_first else x
        states = [mode.sight.all(start) for start in starts]
        last: list[State] = []
        for layer in range(n_layers):
            outputs = []
            for direction in range(n_directions):
                k = layer * n_directions + direction
                own = weights[k * n_weights : (k + 1) * n_weights]
                output, end = _run(mode, cell, x, tuple(state[:, k] for state in states), own, direction == 1)
                outputs.append(output)
                last.append(end)
            x = torch.cat(outputs, -1) if is_bidirectional else outputs[0]
        x = x.transpose(1, 2) if is_batch_first else x
        return (mode.sight.one(x), *(mode.sight.one(torch.stack(parts, 1)) for parts in zip(*last, strict=True)))

    return rule


def _run(
    mode: Perturbed, cell: Cell, x: Tensor, state: State, weights: Sequence[Tensor], is_backward: bool
) -> tuple[Tensor, State]:
    """Outputs [members, steps, texts, hidden] and the last state, from x [members, steps, texts, inputs]."""
    matrix_in, matrix_state, *biases = weights
    bias_in, bias_state = biases or (None, None)
    gates = Layer(mode, matrix_in, bias_in)(x.flatten(1, 2)).view(*x.shape[:3], -1)
    recur = Layer(mode, matrix_state, bias_state)
    outputs = [x] * x.shape[1]
    for step in reversed(range(x.shape[1])) if is_backward else range(x.shape[1]):
        state = cell(gates[:, step], recur, state)
        outputs[step] = state[0]
    return torch.stack(outputs, 1), state


def _cell(cell: Cell) -> Callable[..., Any]:
    """The rule for a function like `torch.lstm_cell`, one step of one layer."""

    def rule(mode: Perturbed, _: object, input: Tensor, hx: Any, *weights: Any) -> Any:  # noqa: ANN401
        starts = hx if isinstance(hx, list | tuple) else (hx,)
        if len(weights) not in (2, 4) or input.dim() != 2 or not mode.sight.reaches(input, *starts):
            return NotImplemented
        every = mode.sight.all(input)[:, None]
        _, end = _run(mode, cell, every, tuple(map(mode.sight.all, starts)), weights, is_backward=False)
        results = tuple(map(mode.sight.one, end))
        return results if isinstance(hx, list | tuple) else results[0]

    return rule


RULES: Rules = {
    torch.lstm: _layers(_lstm),
    torch.gru: _layers(_gru),
    torch.rnn_tanh: _layers(_tanh),
    torch.rnn_relu: _layers(_relu),
    torch.lstm_cell: _cell(_lstm),
    torch.gru_cell: _cell(_gru),
    torch.rnn_tanh_cell: _cell(_tanh),
    torch.rnn_relu_cell: _cell(_relu),
}
