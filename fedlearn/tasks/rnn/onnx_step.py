"""One step of a recurrent network as an ONNX graph: a token and a state in, logits and the next state out."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, final

import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.rnn.objective import RnnObjective

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

OPSET = 17
IR_VERSION = 8
"""Of the format's own; what runtimes of that operator set read."""

MAX_BYTES = 2**31 - 2**20
"""Of a file in this format, which is one protocol buffer."""


def onnx_step(objective: RnnObjective, weights: Float32Array, about: Mapping[str, str]) -> bytes:
    """A file of the network: `token` int64 [n] and `state` [layers, n, hidden] to `logits` [n, vocab] and `next_state`.

    `initial_state` [layers, 1, hidden] is a third output, the same each time: what a text begins with. The graph knows
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
    graph = _Graph()
    graph.add_network(objective, weights)
    numbers, integers = TensorProto.FLOAT, TensorProto.INT64
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "step",
            [
                helper.make_tensor_value_info("token", integers, ["n"]),
                helper.make_tensor_value_info("state", numbers, [n_layers, "n", hidden_size]),
            ],
            [
                helper.make_tensor_value_info("logits", numbers, ["n", vocab_size]),
                helper.make_tensor_value_info("next_state", numbers, [n_layers, "n", hidden_size]),
                helper.make_tensor_value_info("initial_state", numbers, [n_layers, 1, hidden_size]),
            ],
            graph.constants,
        ),
        producer_name="fedlearn",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    helper.set_model_props(model, dict(about))
    return bytes(model.SerializeToString())


@final
class _Graph:
    """Nodes and constants, in the order in which they are added."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def add_network(self, objective: RnnObjective, weights: Float32Array) -> None:
        """All of it, from the token to the logits."""
        parts, (_, hidden_size, n_layers) = objective.layout.split(weights), objective.shape
        states = [f"state_{layer}" for layer in range(n_layers)]
        self._add("Split", ["state", self._constant("one_each", np.ones(n_layers, np.int64))], states, axis=0)
        first = self._constant("first", np.zeros(1, np.int64))
        below, nexts = "token", []
        for layer, state in enumerate(states):
            name = f"l{layer}"
            before = self._add("Squeeze", [state, first], [f"{name}_before"])
            if layer == 0:
                embedding = self._constant("embedding", parts["embedding.weight"])
                inner = self._add("Gather", [embedding, below], [f"{name}_in"])
            else:
                inner = self._product(below, f"{name}_in", parts[f"rnn.weight_ih_l{layer}"])
            inner = self._plus(inner, f"{name}_bias", parts[f"rnn.bias_l{layer}"])
            recurrent = self._product(before, f"{name}_rec", parts[f"rnn.weight_hh_l{layer}"])
            if objective.cell == "gru":
                below = self._gru(name, inner, recurrent, before, parts[f"rnn.bias_hn_l{layer}"])
            else:
                below = self._add("Tanh", [self._add("Add", [inner, recurrent], [f"{name}_sum"])], [f"{name}_out"])
            nexts.append(self._add("Unsqueeze", [below, first], [f"{name}_next"]))
        self._add("Concat", nexts, ["next_state"], axis=0)
        logits = self._product(below, "scores", parts["head.weight"])
        self._add("Add", [logits, self._constant("head_bias", parts["head.bias"])], ["logits"])
        begin = self._constant("begin", parts["initial_state"].reshape(n_layers, 1, hidden_size))
        self._add("Identity", [begin], ["initial_state"])

    def _gru(self, name: str, inner: str, recurrent: str, before: str, bias: Float32Array) -> str:
        """As in `torch.nn.GRU`: reset, update and new gate one after another."""
        thirds = self._constant(f"{name}_thirds", np.full(3, bias.size, np.int64))
        x, h = [f"{name}_x{gate}" for gate in "rzn"], [f"{name}_h{gate}" for gate in "rzn"]
        self._add("Split", [inner, thirds], x, axis=1)
        self._add("Split", [recurrent, thirds], h, axis=1)
        reset, update = (
            self._add("Sigmoid", [self._add("Add", [x[i], h[i]], [f"{name}_s{gate}"])], [f"{name}_{gate}"])
            for i, gate in enumerate(("r", "z"))
        )
        kept = self._add("Mul", [reset, self._plus(h[2], f"{name}_bn", bias)], [f"{name}_kept"])
        new = self._add("Tanh", [self._add("Add", [x[2], kept], [f"{name}_sn"])], [f"{name}_n"])
        # (1 - z) n + z h = n + z (h - n)
        change = self._add("Mul", [update, self._add("Sub", [before, new], [f"{name}_d"])], [f"{name}_c"])
        return self._add("Add", [new, change], [f"{name}_out"])

    def _product(self, vector: str, name: str, matrix: Float32Array) -> str:
        """[n, columns] times [rows, columns] transposed."""
        return self._add("MatMul", [vector, self._constant(f"{name}_w", np.ascontiguousarray(matrix.T))], [name])

    def _plus(self, vector: str, name: str, bias: Float32Array) -> str:
        return self._add("Add", [vector, self._constant(f"{name}_b", bias)], [name])

    def _add(self, operator: str, inputs: list[str], outputs: list[str], **attributes: int) -> str:
        """Adds a node; gives the name of its first output."""
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, outputs, **attributes))
        return outputs[0]

    def _constant(self, name: str, array: NDArray[np.generic]) -> str:
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name
