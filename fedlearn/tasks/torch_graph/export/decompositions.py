"""Operators that draw zeros and ones, in parts of which the draw is one.

They draw as many as PyTorch's kernels for the processor do, in the same order.
"""

from collections.abc import Callable
from math import inf, sqrt
from typing import Any

import torch
from torch import Tensor, fx

from fedlearn.tasks.torch.dropout import BERNOULLI

_aten = torch.ops.aten
_ATTENTION = _aten.scaled_dot_product_attention.default


def decompositions_of(graph: fx.Graph) -> dict[Any, Callable[..., Any]]:
    """How operators of an exported graph are decomposed; attention that drops nothing stays whole."""
    return {**BERNOULLI, **({_ATTENTION: _attention} if any(map(_drops, graph.nodes)) else {})}


def _drops(node: fx.Node) -> bool:
    dropped = node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p", 0.0)
    return node.target is _ATTENTION and bool(dropped)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention as PyTorch documents it."""
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    scores = query @ key.transpose(-2, -1) * (1 / sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(attn_mask.logical_not(), -inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    if attn_mask is None:
        weights = scores.softmax(-1)
    else:
        is_blind = (scores == -inf).all(-1, keepdim=True)  # a query that may look nowhere sees zeros
        weights = scores.masked_fill(is_blind, 0.0).softmax(-1).masked_fill(is_blind, 0.0)
    return _aten.native_dropout.default(weights, dropout_p, True)[0] @ value  # type: ignore[no-any-return]
