"""The cells that a recurrent layer may have, as values: all that a network, its options and its exports ask of one.

`es_core/src/rnn/cells.h` has the same facts for the kernels, which compute the cells.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec
import numpy as np

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.rnn.onnx_graph import OnnxGraph

CellName = Literal["tanh", "gru", "lstm"]


class OnnxSums(msgspec.Struct, frozen=True):
    """What a cell of one layer computes its state from, as names of values in an ONNX graph."""

    layer: str
    """The layer's name, with which names of its values begin."""
    inner: str
    """What is read, times its matrix and with the bias, [n, gates * hidden]."""
    recurrent: str
    """The state's first vector, times its matrix, [n, gates * hidden]."""
    state: tuple[str, ...]
    """The state's vectors before the token, [n, hidden] each."""
    hidden_bias: Float32Array | None
    """The bias of the last gate's recurrent sum, [hidden]; None of cells without."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """What a hidden unit computes, and what this asks of the network around it."""

    gates: int
    """The sums that each unit makes: rows of its matrices for each hidden unit."""
    state_vectors: int
    """Vectors that a layer carries to the next token, [hidden] each; the layer above reads the first one."""
    has_hidden_bias: bool
    """Whether the last gate multiplies its recurrent sum, which so has a bias of its own."""
    has_activation_noise: bool
    """Whether kernels can put noise on its activations."""
    has_int8: bool
    """Whether kernels can evaluate it in bytes."""
    add_to_onnx: Callable[[OnnxGraph, OnnxSums], tuple[str, ...]]
    """Adds a step to a graph; gives the names of the state's vectors after the token."""


def _tanh(graph: OnnxGraph, sums: OnnxSums) -> tuple[str, ...]:
    """The step of `torch.nn.RNN`."""
    name = sums.layer
    total = graph.add("Add", [sums.inner, sums.recurrent], [f"{name}_sum"])
    return (graph.add("Tanh", [total], [f"{name}_out"]),)


def _gru(graph: OnnxGraph, sums: OnnxSums) -> tuple[str, ...]:
    """The step of `torch.nn.GRU`, with reset, update and new gate one after another."""
    name, bias, (before,) = sums.layer, sums.hidden_bias, sums.state
    assert bias is not None
    thirds = graph.constant(f"{name}_thirds", np.full(3, bias.size, np.int64))
    x, h = [f"{name}_x{gate}" for gate in "rzn"], [f"{name}_h{gate}" for gate in "rzn"]
    graph.add("Split", [sums.inner, thirds], x, axis=1)
    graph.add("Split", [sums.recurrent, thirds], h, axis=1)
    reset, update = (
        graph.add("Sigmoid", [graph.add("Add", [x[i], h[i]], [f"{name}_s{gate}"])], [f"{name}_{gate}"])
        for i, gate in enumerate(("r", "z"))
    )
    kept = graph.add("Mul", [reset, graph.plus(h[2], f"{name}_bn", bias)], [f"{name}_kept"])
    new = graph.add("Tanh", [graph.add("Add", [x[2], kept], [f"{name}_sn"])], [f"{name}_n"])
    # (1 - z) n + z h = n + z (h - n)
    change = graph.add("Mul", [update, graph.add("Sub", [before, new], [f"{name}_d"])], [f"{name}_c"])
    return (graph.add("Add", [new, change], [f"{name}_out"]),)


def _lstm(graph: OnnxGraph, sums: OnnxSums) -> tuple[str, ...]:
    """The step of `torch.nn.LSTM`: input, forget, new and output gate one after another; the state is h, then c."""
    name, (_, cell) = sums.layer, sums.state
    total = graph.add("Add", [sums.inner, sums.recurrent], [f"{name}_sum"])
    gates = [f"{name}_s{gate}" for gate in "ifgo"]
    graph.add("Split", [total], gates, axis=1)
    taken, kept, new, shown = (
        graph.add("Tanh" if gate == "g" else "Sigmoid", [value], [f"{name}_{gate}"])
        for gate, value in zip("ifgo", gates, strict=True)
    )
    old = graph.add("Mul", [kept, cell], [f"{name}_old"])
    after = graph.add("Add", [old, graph.add("Mul", [taken, new], [f"{name}_add"])], [f"{name}_cell"])
    return graph.add("Mul", [shown, graph.add("Tanh", [after], [f"{name}_t"])], [f"{name}_out"]), after


CELLS: Mapping[CellName, Cell] = {
    "tanh": Cell(
        gates=1,
        state_vectors=1,
        has_hidden_bias=False,
        has_activation_noise=True,
        has_int8=True,
        add_to_onnx=_tanh,
    ),
    "gru": Cell(
        gates=3,
        state_vectors=1,
        has_hidden_bias=True,
        has_activation_noise=False,
        has_int8=False,
        add_to_onnx=_gru,
    ),
    "lstm": Cell(
        gates=4,
        state_vectors=2,
        has_hidden_bias=False,
        has_activation_noise=False,
        has_int8=False,
        add_to_onnx=_lstm,
    ),
}
