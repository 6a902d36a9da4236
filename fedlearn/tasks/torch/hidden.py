"""Finds the hidden matrices of a module, for optimizers whose step of a matrix depends on the whole."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

LEAST_SIDE = 16
"""The least number of rows and of columns of a matrix that is worth a step of its own."""

EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
RECURRENT = (nn.RNNBase, nn.RNNCellBase, nn.RNN, nn.LSTM, nn.GRU, nn.RNNCell, nn.LSTMCell, nn.GRUCell)

INPUTS_FIRST = "Conv1D"
"""The name of the layer of transformers, as in its GPT-2, whose weights have a row for each input."""

FUSED = ("qkv", "kv", "c_attn", "in_proj")
"""Parts of the names by which layers call projections to queries, keys and values in one matrix."""


def hidden_matrices(model: nn.Module) -> dict[str, int]:
    """The number of hidden matrices in each parameter that holds some, one below the other, by the parameter's name;
    negative where they lie side by side, since its rows are inputs.

    Embeddings have none, nor has the head: the last matrix, unless an embedding is the head as well. A convolution's
    kernel is one matrix; gates of a recurrent layer, and queries, keys and values from one product, are several.
    """
    named = dict(model.named_parameters())
    owners = dict(model.named_modules())  # get_submodule is refused by TorchScript
    embeddings = {
        id(parameter)
        for module in model.modules()
        if _is_one_of(module, EMBEDDINGS)
        for parameter in module.parameters(recurse=False)
    }
    counts = {name: _count(owners, name, parameter) for name, parameter in named.items() if parameter.dim() > 1}
    others = [name for name in counts if id(named[name]) not in embeddings]
    if others and not _has_tied_head(model, embeddings):
        others.pop()
    return {name: counts[name] for name in others if _are_wide(named[name], counts[name])}


def _is_one_of(module: nn.Module, classes: tuple[type[nn.Module], ...]) -> bool:
    """Whether a module is of one of these classes, or a TorchScript of one that is."""
    if isinstance(module, torch.jit.ScriptModule):
        return _class_of(module) in [each.__name__ for each in classes]
    return isinstance(module, classes)


def _class_of(module: nn.Module | None) -> str:
    """The name of the class of a module, or of the one that a TorchScript was made of."""
    return str(module.original_name) if isinstance(module, torch.jit.ScriptModule) else type(module).__name__


def _has_tied_head(model: nn.Module, embeddings: set[int]) -> bool:
    layers = (module for module in model.modules() if _is_one_of(module, (nn.Linear,)))
    return any(id(layer.weight) in embeddings for layer in layers)


def _count(owners: Mapping[str, nn.Module], name: str, parameter: Tensor) -> int:
    """The number of matrices that this parameter would hold, as `hidden_matrices` counts them."""
    path, _, own = name.rpartition(".")
    owner = owners.get(path)
    if owner is not None and _is_one_of(owner, RECURRENT) and own.startswith(("weight_ih", "weight_hh")):
        size: Any = owner.hidden_size
        return parameter.shape[0] // int(size)
    sign = -1 if _class_of(owner) == INPUTS_FIRST and parameter.dim() == 2 else 1
    n_outputs, n_inputs = _sides(parameter, sign)
    is_fused = any(part in name for part in FUSED)
    return sign * (n_outputs // n_inputs if is_fused and n_outputs in (2 * n_inputs, 3 * n_inputs) else 1)


def _sides(parameter: Tensor, count: int) -> tuple[int, int]:
    """Outputs and inputs of all matrices of a parameter together."""
    rows, columns = parameter.shape[0], parameter[0].numel()
    return (rows, columns) if count > 0 else (columns, rows)


def _are_wide(parameter: Tensor, count: int) -> bool:
    n_outputs, n_inputs = _sides(parameter, count)
    return n_outputs % count == 0 and min(n_outputs // abs(count), n_inputs) >= LEAST_SIDE
