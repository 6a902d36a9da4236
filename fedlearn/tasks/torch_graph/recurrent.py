"""Checks of recurrent layers' shapes, which ATen's functions lack: with a weight too few they end the process."""

from collections.abc import Sequence

from torch import Tensor

from fedlearn.graphs.graph import GraphError

GATES = {"lstm.input": 4, "gru.input": 3, "rnn_tanh.input": 1, "rnn_relu.input": 1}
"""Rows of a layer's weights for each hidden unit, by operator."""


def refuse_other_shapes(
    operator: str,
    input: Tensor,
    hx: Tensor | Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> None:
    """Accepts the arguments that `torch.nn` passes for a layer without projections.

    Raises:
        GraphError: a state or a weight has a wrong shape or dtype, or there are too few or too many of them.
    """
    n_directions = 2 if bidirectional else 1
    states = [hx] if isinstance(hx, Tensor) else list(hx)
    expected_states = 2 if operator == "lstm.input" else 1
    if input.dim() != 3 or len(states) != expected_states or states[0].dim() != 3:
        raise GraphError(
            f"{operator}: expected {expected_states} states and an input of three dimensions, "
            f"got {[list(state.shape) for state in states]} and {list(input.shape)}"
        )
    n_weights = num_layers * n_directions * (4 if has_biases else 2)
    if len(params) != n_weights:
        raise GraphError(
            f"{operator}: expected {n_weights} weights, got {len(params)}; layers with projections need --share nothing"
        )
    hidden = states[0].shape[2]
    batch_size = input.shape[0 if batch_first else 1]
    expected: list[tuple[int, ...]] = [(num_layers * n_directions, batch_size, hidden)] * expected_states
    for layer in range(num_layers):
        n_inputs = input.shape[2] if layer == 0 else n_directions * hidden
        rows = GATES[operator] * hidden
        one: list[tuple[int, ...]] = [(rows, n_inputs), (rows, hidden)]
        if has_biases:
            one += [(rows,), (rows,)]
        expected += one * n_directions
    got = [*states, *params]
    if [tuple(x.shape) for x in got] != expected or any(x.dtype != input.dtype for x in got):
        raise GraphError(
            f"{operator}: expected {input.dtype} {[list(shape) for shape in expected]} as its states and weights, "
            f"got {[list(x.shape) for x in got]}"
        )
