"""The loss over a vocabulary whose logits are made in shards: rows of a head that no one machine holds.

A shard tells two numbers a token, whatever its size: the log-sum-exp of its own logits, and the logit of the token that
comes next, if that is one of its rows. Source: Megatron-LM's parallel cross-entropy, arXiv 1909.08053, section 3.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array

Int64Array = NDArray[np.int64]


def shard_terms(logits: Float32Array, targets: Int64Array, first_row: int) -> Float32Array:
    """What a shard tells of its logits [..., tokens, rows]: log-sum-exp and the target's logit, [..., tokens, 2].

    Its rows are those of the vocabulary from `first_row` on; of targets [tokens] that are another shard's it tells
    not-a-number. Made in float64 and rounded once: 8 bytes a token.
    """
    exact = logits.astype(np.float64)
    greatest = exact.max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):  # an infinite logit makes the sum not-a-number, and the loss
        sums = np.log(np.exp(exact - greatest).sum(axis=-1)) + greatest[..., 0]
    rows = targets - first_row
    is_own = (rows >= 0) & (rows < logits.shape[-1])
    at = np.broadcast_to(np.where(is_own, rows, 0)[:, np.newaxis], (*logits.shape[:-1], 1))
    picked = np.where(is_own, np.take_along_axis(exact, at, axis=-1)[..., 0], np.nan)
    return np.stack([sums, picked], axis=-1).astype(np.float32)


def token_losses(terms: Sequence[Float32Array], targets: Int64Array, first_rows: Sequence[int]) -> NDArray[np.float64]:
    """Nats of each token [..., tokens], from the terms [..., tokens, 2] of all shards in the order of their rows.

    A target's logit is taken from the shard that has its row, by `first_rows`; what others tell of it does not count.
    What a shard tells that is not finite makes a loss that is not finite. Summed in float64, in this order.

    Raises:
        ValueError: these are not shards of one vocabulary, or tell of different tokens.
    """
    shapes = {of_shard.shape for of_shard in terms}
    if len(shapes) != 1 or next(iter(shapes))[-2:] != (targets.size, 2):
        raise ValueError(f"terms: expected [..., {targets.size}, 2] of every shard, got {sorted(shapes)}")
    begins = np.array(first_rows, dtype=np.int64)
    if begins.size != len(terms) or begins[0] != 0 or (np.diff(begins) <= 0).any():
        raise ValueError(f"first_rows: expected {len(terms)} ascending from 0 on, got {list(first_rows)}")
    if targets.min(initial=0) < 0:
        raise ValueError(f"targets: expected rows from 0 on, got {targets.min()}")
    told = np.stack(terms).astype(np.float64)
    greatest = told[..., 0].max(axis=0)
    total = np.zeros_like(greatest)
    with np.errstate(invalid="ignore"):
        for of_shard in told:
            total += np.exp(of_shard[..., 0] - greatest)
        holders = np.searchsorted(begins, targets, side="right") - 1
        picked = np.moveaxis(told[..., 1], -1, 0)[np.arange(targets.size), holders]
        losses: NDArray[np.float64] = np.log(total) + greatest - np.moveaxis(picked, 0, -1)
    return losses
