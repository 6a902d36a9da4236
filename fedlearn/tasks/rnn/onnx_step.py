"""One step of a recurrent network as an ONNX graph: a token and a state in, logits and the next state out."""

from collections.abc import Mapping

import numpy as np

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.rnn.cells import CELLS, OnnxSums
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.tasks.rnn.onnx_graph import OnnxGraph

OPSET = 17
IR_VERSION = 8
"""The version of the format that runtimes of this operator set read."""

MAX_BYTES = 2**31 - 2**20
"""The most bytes of a file in this format, which is one protocol buffer."""


def onnx_step(objective: RnnObjective, weights: Float32Array, about: Mapping[str, str]) -> bytes:
    """A file of the network: `token` int64 [n] and `state` [s, n, hidden] to `logits` [n, vocab] and `next_state`.

    There are s state vectors: as many as the cell has in all layers, the first ones before the second ones.
    `initial_state` [s, 1, hidden] is a third output, the same each time: what a text begins with. The graph knows
    of no reset token: whoever feeds it one passes zeros as `state`.

    Raises:
        ValueError: the package onnx is missing, or the model is too large for the format.
    """
    if weights.nbytes > MAX_BYTES:
        raise ValueError(f"onnx: expected weights of at most {MAX_BYTES} bytes, got {weights.nbytes}; use safetensors")
    try:
        from onnx import TensorProto, helper
    except ImportError as error:
        raise ValueError("onnx: expected the package onnx, which is missing; pip install 'fedlearn[onnx]'") from error
    vocab_size, hidden_size, n_layers = objective.shape
    n_vectors = CELLS[objective.cell].state_vectors * n_layers
    graph = OnnxGraph()
    _add_network(graph, objective, weights)
    numbers, integers = TensorProto.FLOAT, TensorProto.INT64
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "step",
            [
                helper.make_tensor_value_info("token", integers, ["n"]),
                helper.make_tensor_value_info("state", numbers, [n_vectors, "n", hidden_size]),
            ],
            [
                helper.make_tensor_value_info("logits", numbers, ["n", vocab_size]),
                helper.make_tensor_value_info("next_state", numbers, [n_vectors, "n", hidden_size]),
                helper.make_tensor_value_info("initial_state", numbers, [n_vectors, 1, hidden_size]),
            ],
            graph.constants,
        ),
        producer_name="fedlearn",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    helper.set_model_props(model, dict(about))
    return bytes(model.SerializeToString())


def _add_network(graph: OnnxGraph, objective: RnnObjective, weights: Float32Array) -> None:
    """All of it, from the token to the logits."""
    parts, (_, hidden_size, n_layers), cell = objective.layout.split(weights), objective.shape, CELLS[objective.cell]
    states = [f"state_{number}" for number in range(cell.state_vectors * n_layers)]
    graph.add("Split", ["state", graph.constant("one_each", np.ones(len(states), np.int64))], states, axis=0)
    first = graph.constant("first", np.zeros(1, np.int64))
    below, nexts = "token", []
    for layer in range(n_layers):
        name = f"l{layer}"
        before = tuple(
            graph.add("Squeeze", [state, first], [f"{name}_before{'' if number == 0 else number}"])
            for number, state in enumerate(states[layer::n_layers])
        )
        if layer == 0:
            embedding = graph.constant("embedding", parts["embedding.weight"])
            inner = graph.add("Gather", [embedding, below], [f"{name}_in"])
        else:
            inner = graph.product(below, f"{name}_in", parts[f"rnn.weight_ih_l{layer}"])
        inner = graph.plus(inner, f"{name}_bias", parts[f"rnn.bias_l{layer}"])
        recurrent = graph.product(before[0], f"{name}_rec", parts[f"rnn.weight_hh_l{layer}"])
        hidden_bias = parts[f"rnn.bias_hn_l{layer}"] if cell.has_hidden_bias else None
        after = cell.add_to_onnx(graph, OnnxSums(name, inner, recurrent, before, hidden_bias))
        below = after[0]
        nexts.append([graph.add("Unsqueeze", [vector, first], [f"{vector}_next"]) for vector in after])
    graph.add("Concat", [vector for vectors in zip(*nexts, strict=True) for vector in vectors], ["next_state"], axis=0)
    logits = graph.product(below, "scores", parts["head.weight"])
    graph.add("Add", [logits, graph.constant("head_bias", parts["head.bias"])], ["logits"])
    begin = graph.constant("begin", parts["initial_state"].reshape(len(states), 1, hidden_size))
    graph.add("Identity", [begin], ["initial_state"])
