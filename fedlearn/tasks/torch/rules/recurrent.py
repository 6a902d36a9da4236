"""Rules for recurrent layers, for which vmap has none: each step is computed for all members at a time.

Values are [features, texts, members], so that the gates of a step lie one after another, a product with a matrix is one
product for all members, and factors that differ between members are multiplied along the last dimension.
"""

from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from fedlearn.tasks.torch.members.mode import Perturbed, Rules
from fedlearn.tasks.torch.rules.products import add_product, every

State = tuple[Tensor, ...]
"""The state of a layer between steps, [hidden, texts, members] each; the first tensor is its output."""
Cell = Callable[[Tensor, Tensor, State, Tensor], State]
"""A function from gates, the input's part of the last gate, and state to the next state.

It writes the first tensor of the next state into memory that it is given, and may overwrite all but the first tensor
of the state."""


@final
class _Matrix:
    """A perturbed matrix as a function of columns."""

    def __init__(self, mode: Perturbed, weight: Tensor) -> None:
        factors = mode.factors(weight)
        self._weight, self._own = weight, None
        self._factors: list[tuple[Tensor, Tensor]] = []
        if factors is not None:
            rows, columns = (side.permute(2, 1, 0)[:, :, None].contiguous() for side in factors)
            self._factors = list(zip(rows, columns, strict=True))
        elif mode.noise_of(weight) is not None or mode.view.is_batched(weight):
            self._own = every(mode, weight)

    def add_to(self, y: Tensor, x: Tensor) -> Tensor:
        """Adds the products with x [inputs, texts, members] to y [outputs, texts, members]."""
        if self._own is not None:
            return y.add_(torch.einsum("moi,itm->otm", self._own, x))
        for rows, columns in self._factors:
            y.addcmul_(rows, (columns * x).sum(0, keepdim=True))
        # The columns of all texts and members form one matrix.
        add_product(y.view(len(y), -1), self._weight, x.reshape(len(x), -1))
        return y


def _lstm(gates: Tensor, _: Tensor, state: State, out: Tensor) -> State:
    size = len(out)
    input, forget = gates[: 2 * size].sigmoid_().chunk(2)
    new, output = gates[2 * size : 3 * size].tanh_(), gates[3 * size :].sigmoid_()
    cell = state[1].mul_(forget).addcmul_(input, new)
    return torch.mul(torch.tanh(cell, out=new), output, out=out), cell


def _gru(gates: Tensor, input: Tensor, state: State, out: Tensor) -> State:
    size = len(out)
    reset, update = gates[: 2 * size].sigmoid_().chunk(2)
    new = input.addcmul_(reset, gates[2 * size :]).tanh_()
    return (torch.lerp(new, state[0], update, out=out),)


def _tanh(gates: Tensor, _: Tensor, __: State, out: Tensor) -> State:
    return (torch.tanh(gates, out=out),)


def _relu(gates: Tensor, _: Tensor, __: State, out: Tensor) -> State:
    return (torch.clamp(gates, min=0, out=out),)


def _inward(mode: Perturbed, x: Tensor) -> Tensor:
    """The tensors [..., features, texts, members] of all members from a tensor [..., texts, features] under vmap."""
    return mode.view.all(x).movedim(0, -1).transpose(-2, -3).contiguous()


def _outward(mode: Perturbed, x: Tensor) -> Tensor:
    """A tensor [..., texts, features] under vmap from the tensors [..., features, texts, members] of all members."""
    return mode.view.one(x.movedim(-1, 0).transpose(-1, -2))


def _layers(cell: Cell) -> Callable[..., Any]:
    """The rule for a function like `torch.lstm`, which runs all layers and both directions."""

    def rule(mode: Perturbed, _: object, input: Tensor, hx: Any, weights: Any, *more: Any) -> Any:  # noqa: ANN401
        # A packed sequence has a tensor of lengths as its second argument, and all others one position later.
        if not isinstance(weights, list | tuple) or len(more) != 6:
            return NotImplemented
        has_bias, n_layers, dropout, is_training, is_bidirectional, is_batch_first = more
        starts = hx if isinstance(hx, list | tuple) else (hx,)
        n_weights, n_directions = 4 if has_bias else 2, 2 if is_bidirectional else 1
        drops = dropout > 0 and is_training and n_layers > 1
        if drops or len(weights) != n_weights * n_directions * n_layers or not mode.view.can_unwrap(input, *starts):
            return NotImplemented
        x = _inward(mode, input.transpose(0, 1) if is_batch_first else input)
        states = [_inward(mode, start) for start in starts]
        last: list[State] = []
        for layer in range(n_layers):
            outputs = []
            for direction in range(n_directions):
                k = layer * n_directions + direction
                own = weights[k * n_weights : (k + 1) * n_weights]
                output, end = _run(mode, cell, x, tuple(state[k] for state in states), own, direction == 1)
                outputs.append(output)
                last.append(end)
            x = torch.cat(outputs, 1) if is_bidirectional else outputs[0]
        y = _outward(mode, x)
        y = y.transpose(0, 1) if is_batch_first else y
        return (y, *(_outward(mode, torch.stack(parts)) for parts in zip(*last, strict=True)))

    return rule


def _run(
    mode: Perturbed, cell: Cell, x: Tensor, state: State, weights: Sequence[Tensor], is_backward: bool
) -> tuple[Tensor, State]:
    """Outputs [steps, hidden, texts, members] and the last state, from x [steps, inputs, texts, members]."""
    matrix_in, matrix_state, *biases = weights
    # A GRU multiplies the state's part of its last gate by another gate, so the two biases stay separate.
    together = 2 * len(state[0]) if cell is _gru else len(matrix_in)
    of_input, of_state = _Matrix(mode, matrix_in), _Matrix(mode, matrix_state)
    bias = x.new_zeros(len(matrix_in), 1, 1)
    bias_state = bias[together:]
    if biases:
        bias, added = (every(mode, one).mT[:, None] for one in biases)
        bias, bias_state = torch.cat((bias[:together] + added[:together], bias[together:])), added[together:]
    # The memory of one step is reused, so that it stays in the caches.
    gates = x.new_empty(len(matrix_in), *x.shape[2:])
    last = torch.empty_like(gates[together:])
    outputs = x.new_empty(len(x), *state[0].shape)
    state = (state[0], *(part.clone() for part in state[1:]))
    for step in reversed(range(len(x))) if is_backward else range(len(x)):
        of_input.add_to(gates.copy_(bias), x[step])
        last.copy_(gates[together:])
        gates[together:] = bias_state
        state = cell(of_state.add_to(gates, state[0]), last, state, outputs[step])
    return outputs, state


def _cell(cell: Cell) -> Callable[..., Any]:
    """The rule for a function like `torch.lstm_cell`, one step of one layer."""

    def rule(mode: Perturbed, _: object, input: Tensor, hx: Any, *weights: Any) -> Any:  # noqa: ANN401
        starts = hx if isinstance(hx, list | tuple) else (hx,)
        if len(weights) not in (2, 4) or input.dim() != 2 or not mode.view.can_unwrap(input, *starts):
            return NotImplemented
        x, state = _inward(mode, input)[None], tuple(_inward(mode, start) for start in starts)
        _, end = _run(mode, cell, x, state, weights, is_backward=False)
        results = tuple(_outward(mode, part) for part in end)
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
