"""The tensors of an RNN, in the order that `es_core` expects, and their names in PyTorch."""

from typing import Literal

import numpy as np

from fedlearn.es.layout import Float32Array, ParameterLayout, TensorSpec
from fedlearn.tasks.rnn.cells import CELLS, CellName

Residuals = Literal["head", "readout"]
"""The residuals at which the chain of control matrices starts: the head's, or those of a readout learned beside it."""


def control_tensors(shape: tuple[int, int, int], residuals: Residuals) -> tuple[TensorSpec, ...]:
    """Control matrices for noise on activations, in the order that `es_core` expects; zero in a new run.

    They are a chain from a token's loss to the units of the last layer, from each token to the one before, and from
    each layer to the one below. It starts at the residuals of a prediction: the head's, or those of a readout that is
    among the tensors, and then there is a matrix for the noise on logits, too.
    """
    vocab_size, hidden_size, n_layers = shape
    sizes: dict[str, tuple[int, ...]] = {"control.head": (vocab_size, hidden_size)}
    for layer in range(n_layers):
        sizes[f"control.next_l{layer}"] = (hidden_size, hidden_size)
        if layer < n_layers - 1:
            sizes[f"control.above_l{layer}"] = (hidden_size, hidden_size)
    if residuals == "readout":
        sizes["control.readout"] = (vocab_size, hidden_size)
        sizes["control.readout_bias"] = (vocab_size,)
        sizes["control.logits"] = (vocab_size, vocab_size)
    return tuple(TensorSpec(name, size) for name, size in sizes.items())


def rnn_layout(
    vocab_size: int, hidden_size: int, n_layers: int, embedding_scale: float, cell: CellName = "tanh"
) -> ParameterLayout:
    """Tensors of the network in the order that `es_core` expects; names follow PyTorch's where it has the tensor."""
    gates, n_states = CELLS[cell].gates, CELLS[cell].state_vectors * n_layers
    rows = gates * hidden_size
    tensors = [TensorSpec("embedding.weight", (vocab_size, rows), scale=embedding_scale, mask_column=0)]
    for layer in range(n_layers):
        if layer > 0:
            tensors.append(TensorSpec(f"rnn.weight_ih_l{layer}", (rows, hidden_size), n_hidden=gates))
        tensors.append(TensorSpec(f"rnn.weight_hh_l{layer}", (rows, hidden_size), n_hidden=gates))
        tensors.append(TensorSpec(f"rnn.bias_l{layer}", (rows,)))
        if CELLS[cell].has_hidden_bias:
            tensors.append(TensorSpec(f"rnn.bias_hn_l{layer}", (hidden_size,)))
    tensors += [
        TensorSpec("head.weight", (vocab_size, hidden_size)),
        TensorSpec("head.bias", (vocab_size,)),
        TensorSpec("initial_state", (n_states * hidden_size,), mask_column=vocab_size),
    ]
    return ParameterLayout(tuple(tensors))


def to_torch_names(layout: ParameterLayout, weights: Float32Array) -> dict[str, Float32Array]:
    """The weights as PyTorch names them: `rnn = nn.RNN(vocab, hidden, layers)`, `head = nn.Linear(hidden, vocab)`.

    With other cells it is `nn.GRU` or `nn.LSTM`. It reads one-hot tokens; `initial_state` [layers, hidden] is `h_0`,
    or, for an LSTM, `h_0` and behind it `c_0`, [2 * layers, hidden].
    """
    parts = layout.split(weights)
    hidden_size = parts["rnn.weight_hh_l0"].shape[1]
    named = {"head.weight": parts["head.weight"], "head.bias": parts["head.bias"]}
    named["initial_state"] = parts["initial_state"].reshape(-1, hidden_size)
    for layer in range(sum(name.startswith("rnn.weight_hh_l") for name in parts)):
        input_weights = parts["embedding.weight"].T if layer == 0 else parts[f"rnn.weight_ih_l{layer}"]
        second_bias = np.zeros_like(parts[f"rnn.bias_l{layer}"])
        if f"rnn.bias_hn_l{layer}" in parts:
            second_bias[-hidden_size:] = parts[f"rnn.bias_hn_l{layer}"]
        named[f"rnn.weight_ih_l{layer}"] = np.ascontiguousarray(input_weights)
        named[f"rnn.weight_hh_l{layer}"] = parts[f"rnn.weight_hh_l{layer}"]
        named[f"rnn.bias_ih_l{layer}"] = parts[f"rnn.bias_l{layer}"]
        named[f"rnn.bias_hh_l{layer}"] = second_bias
    return named
