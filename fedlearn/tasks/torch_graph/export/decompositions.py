"""Operators that draw zeros and ones, in parts of which the draw is one.

They draw as many as PyTorch's kernels for the processor do, in the same order.
"""

from collections.abc import Callable, Mapping
from math import inf, sqrt
from typing import Any

import torch
from torch import Tensor, fx

from fedlearn.tasks.torch.dropout import bernoulli

_aten = torch.ops.aten
_ATTENTION = _aten.scaled_dot_product_attention.default


def _zeros_and_ones(like: Tensor, p: float) -> Tensor:
    ones = torch.ones(like.shape, device=like.device)
    kept: Tensor = _aten.native_dropout.default(ones, 1 - p, True)[0]
    return (kept != 0).to(like.dtype)


_BERNOULLI: Mapping[Any, Callable[..., Any]] = {
    _aten.bernoulli.default: lambda p: bernoulli(p, p),
    _aten.bernoulli.p: _zeros_and_ones,
}


def decompositions_of(graph: fx.Graph) -> dict[Any, Callable[..., Any]]:
    """How operators of an exported graph are decomposed; attention that drops nothing stays whole."""
    return {**_BERNOULLI, **({_ATTENTION: _attention} if any(map(_drops, graph.nodes)) else {})}


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
    scores = query * (1 / sqrt(query.shape[-1]) if scale is None else scale) @ key.transpose(-2, -1)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(attn_mask.logical_not(), -inf)
    if attn_mask is None or is_causal:
        may_look = None
    else:
        # A query that may look nowhere sees zeros.
        is_blind = (attn_mask == -inf).all(-1, keepdim=True)
        attn_mask, may_look = attn_mask.masked_fill(is_blind, 0.0), is_blind.logical_not()
    weights = (scores if attn_mask is None else scores + attn_mask).softmax(-1)
    seen: Tensor = _aten.native_dropout.default(weights, dropout_p, True)[0] @ value
    return seen if may_look is None else seen * may_look
