"""Rules for attention, which compute the texts of all members in one call, and PyTorch's attention layer in parts."""

import inspect
import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from fedlearn.tasks.torch.members.mode import Perturbed, Rules
from fedlearn.tasks.torch.members.noise import Factors
from fedlearn.tasks.torch.rules.products import product


def _attention(
    mode: Perturbed,
    _: object,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:  # noqa: ANN401
    """Attention over the texts of all members in one call; vmap has no rule for it and would run many small
    operations."""
    given = (query, key, value, attn_mask)
    view = mode.view
    if dropout_p > 0 or query.dim() < 3 or mode.holds(*given) or not view.can_unwrap(*given):
        return NotImplemented
    if not any(x is not None and view.is_batched(x) for x in given):
        return NotImplemented
    # The leading dimension holds members and texts; heads, rows and columns follow.
    q, k, v = (
        view.all(x).reshape(-1, *x.shape[-3:]) if x.dim() > 3 else view.all(x)[:, None] for x in (query, key, value)
    )
    mask = attn_mask
    if mask is not None and (view.is_batched(mask) or (mask.dim() > 3 and len(mask) > 1)):
        lead = query.shape[:-3] if query.dim() > 3 else ()
        heads = mask.shape[-3] if mask.dim() > 2 else 1
        mask = mask.expand(*lead, heads, *mask.shape[-2:])
        mask = view.all(mask).reshape(-1, heads, *mask.shape[-2:])
    out = F.scaled_dot_product_attention(q, k, v, mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa)
    return view.one(out.reshape(view.n_members, *query.shape[:-1], value.shape[-1]))


_SIGNATURE = inspect.signature(F.multi_head_attention_forward)
_RARE = ("use_separate_proj_weight", "add_zero_attn", "bias_k", "bias_v", "static_k", "static_v")


def _layer(mode: Perturbed, _: object, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (or NotImplemented)
    """`F.multi_head_attention_forward`, composed of functions that have rules; rare options are left to the plain
    form."""
    bound = _SIGNATURE.bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    texts = [given[name] for name in ("query", "key", "value")]
    masks = [given[name] for name in ("attn_mask", "key_padding_mask")]
    drops = given["dropout_p"] > 0 and given["training"]
    is_rare = drops or any(given[name] is not None and given[name] is not False for name in _RARE)
    inward, outward = mode.factors(given["in_proj_weight"]), mode.factors(given["out_proj_weight"])
    if is_rare or inward is None or outward is None or texts[0].dim() != 3 or mode.holds(*texts, *masks):
        return NotImplemented
    n_heads = given["num_heads"]
    q, k, v = _heads(mode, texts, given["in_proj_weight"], given["in_proj_bias"], inward, n_heads)
    mask = _merged_mask(*masks, like=q, n_heads=n_heads)
    weights = None
    if given["need_weights"]:
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        weights = (scores if mask is None else scores + mask).softmax(-1)
        y = weights @ v
        weights = weights.mean(1) if given["average_attn_weights"] else weights
    else:
        with mode:
            y = F.scaled_dot_product_attention(q, k, v, mask)
    y = product(mode, y.permute(2, 0, 1, 3).flatten(2), given["out_proj_weight"], given["out_proj_bias"], outward)
    return y, weights


def _heads(
    mode: Perturbed, texts: list[Tensor], weight: Tensor, bias: Tensor | None, factors: Factors, n_heads: int
) -> list[Tensor]:
    """Queries, keys and values, [texts, heads, length, size of a head] each, from [length, texts, size] each."""
    size = weight.shape[0] // 3
    bias = None if bias is None else mode.perturbed(bias)
    parts = []
    for part, x in enumerate(texts):
        place = slice(part * size, (part + 1) * size)
        noise = Factors(factors.rows[:, place], factors.columns)
        y = product(mode, x, weight[place], None if bias is None else bias[place], noise)
        parts.append(y.view(*y.shape[:2], n_heads, -1).permute(1, 2, 0, 3))
    return parts


def _merged_mask(attn_mask: Tensor | None, padding: Tensor | None, *, like: Tensor, n_heads: int) -> Tensor | None:
    """Numbers to add to scores, [texts or 1, heads or 1, length, length]; None if no score is masked."""

    def numbers(mask: Tensor) -> Tensor:
        if mask.dtype != torch.bool:
            return mask.to(like.dtype)
        return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -math.inf)

    masks = []
    if attn_mask is not None:
        masks.append(numbers(attn_mask if attn_mask.dim() == 2 else attn_mask.view(-1, n_heads, *attn_mask.shape[1:])))
    if padding is not None:
        masks.append(numbers(padding)[:, None, None])
    return sum(masks[1:], masks[0]) if masks else None


RULES: Rules = {F.scaled_dot_product_attention: _attention, F.multi_head_attention_forward: _layer}
