"""Finds the hidden matrices of a module, for optimizers whose step of a matrix depends on the whole."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

LEAST_SIDE = 16
"""The least number of rows and of columns of a matrix that is worth a step of its own."""

EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
RECURRENT = (nn.RNNBase, nn.RNNCellBase, nn.RNN, nn.LSTM, nn.GRU, nn.RNNCell, nn.LSTMCell, nn.GRUCell)

FUSED = ("qkv", "kv", "c_attn", "in_proj")
"""Parts of the names by which layers call projections to queries, keys and values in one matrix."""


def hidden_matrices(model: nn.Module) -> dict[str, int]:
    """The number of hidden matrices in each parameter that holds some, one below the other, by the parameter's name.

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
    return {name: counts[name] for name in others if _is_wide(named[name], counts[name])}


def _is_one_of(module: nn.Module, classes: tuple[type[nn.Module], ...]) -> bool:
    """Whether a module is of one of these classes, or a TorchScript of one that is."""
    if isinstance(module, torch.jit.ScriptModule):
        return str(module.original_name) in [each.__name__ for each in classes]
    return isinstance(module, classes)


def _has_tied_head(model: nn.Module, embeddings: set[int]) -> bool:
    layers = (module for module in model.modules() if _is_one_of(module, (nn.Linear,)))
    return any(id(layer.weight) in embeddings for layer in layers)


def _count(owners: Mapping[str, nn.Module], name: str, parameter: Tensor) -> int:
    """The number of matrices that this parameter would hold, one below the other."""
    path, _, own = name.rpartition(".")
    owner = owners.get(path)
    if owner is not None and _is_one_of(owner, RECURRENT) and own.startswith(("weight_ih", "weight_hh")):
        size: Any = owner.hidden_size
        return parameter.shape[0] // int(size)
    rows, columns = parameter.shape[0], parameter[0].numel()
    is_fused = any(part in name for part in FUSED)
    return rows // columns if is_fused and rows in (2 * columns, 3 * columns) else 1


def _is_wide(parameter: Tensor, count: int) -> bool:
    rows = parameter.shape[0]
    return rows % count == 0 and min(rows // count, parameter[0].numel()) >= LEAST_SIDE
