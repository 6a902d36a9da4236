"""Substitutes for functions that `torch.export` cannot follow, or that are unsafe on data of others.

They replace PyTorch's functions while a program is captured; the program's loss is compared with the module's.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from math import inf
from typing import Any, final

import torch
from torch import _VF, Tensor
from torch.distributions import Distribution
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)
from torch.nn.modules import transformer
from torch.utils import checkpoint

_ctc_loss, _embedding_bag = F.ctc_loss, F.embedding_bag

_NEVER = -1e30
"""The logarithm of a probability of zero; that of infinity would have no derivative in a sum of several."""


def standing_in() -> AbstractContextManager[None]:
    """A context in which modules call the functions of this file, and distributions do not look at their arguments."""
    return _replaced(
        (F, "ctc_loss", ctc_loss),
        (F, "embedding_bag", embedding_bag),
        (F, "gumbel_softmax", gumbel_softmax),
        (Distribution, "_validate_args", False),
        (checkpoint, "CheckpointFunction", TransparentCheckpoint),
        (transformer, "_detect_is_causal_mask", _is_said_to_be_causal),
        *((_VF, name, _layer_by_layer(getattr(_VF, name))) for name in ("gru", "lstm", "rnn_relu", "rnn_tanh")),
    )


@final
class TransparentCheckpoint:
    """A reentrant checkpoint that keeps everything, as each volunteer chooses what it keeps of a graph."""

    @staticmethod
    def apply(function: Callable[..., Any], _preserve_rng_state: bool, *args: Any) -> Any:  # noqa: ANN401 (of any kind)
        """What the function gives; no gradient passes where no argument has one, as in PyTorch's."""
        has_gradient = any(isinstance(arg, Tensor) and arg.requires_grad for arg in args)
        with torch.set_grad_enabled(has_gradient):
            return function(*args)


def drawing_alike() -> AbstractContextManager[None]:
    """A context in which modules draw the random numbers that their graphs do."""
    return _replaced((F, "gumbel_softmax", gumbel_softmax))


@contextmanager
def _replaced(*substitutes: tuple[Any, str, Any]) -> Iterator[None]:
    """A context in which attributes have other values, given as (owner, name, value)."""
    before = [getattr(owner, name) for owner, name, _ in substitutes]
    for owner, name, value in substitutes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for (owner, name, _), value in zip(substitutes, before, strict=True):
            setattr(owner, name, value)


def _is_said_to_be_causal(_mask: Tensor | None, is_causal: bool | None = None, _size: int | None = None) -> bool:
    """Whether a mask is declared causal; whether it really is follows from its values, and only affects speed."""
    return bool(is_causal)


def _layer_by_layer(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function like `torch.lstm` by one layer after another, with dropout between them, which a graph has apart."""

    def run(input: Tensor, hx: Any, weights: Any, *more: Any) -> Any:  # noqa: ANN401 (a tensor, or two; of any order)
        # A packed sequence has one more argument.
        if not isinstance(weights, list | tuple) or len(more) != 6:
            return function(input, hx, weights, *more)
        has_bias, n_layers, dropout, is_training, is_bidirectional, is_batch_first = more
        if n_layers == 1 or not (is_training and dropout > 0):
            return function(input, hx, weights, *more)
        x = input.transpose(0, 1) if is_batch_first else input
        n_weights, n_states = len(weights) // n_layers, 2 if is_bidirectional else 1
        ends = []
        for layer in range(n_layers):
            own = slice(layer * n_states, (layer + 1) * n_states)
            state = [part[own] for part in hx] if isinstance(hx, list | tuple) else hx[own]
            of_layer = weights[layer * n_weights : (layer + 1) * n_weights]
            x = F.dropout(x, dropout) if layer else x
            x, *end = function(x, state, of_layer, has_bias, 1, 0.0, False, is_bidirectional, False)
            ends.append(end)
        return (x.transpose(0, 1) if is_batch_first else x, *map(torch.cat, zip(*ends, strict=True)))

    return run


def embedding_bag(input: Tensor, weight: Tensor, offsets: Tensor | None = None, *args: Any, **kwargs: Any) -> Tensor:  # noqa: ANN401
    """`F.embedding_bag` of bags [bags, length], without offsets, which PyTorch's kernel does not check."""
    names = (
        "max_norm", "norm_type", "scale_grad_by_freq", "mode", "sparse", "per_sample_weights", "include_last_offset",
        "padding_idx",
    )  # fmt: skip
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    weights, mode = given.get("per_sample_weights"), given.get("mode", "mean")
    if input.dim() != 2 or given.get("max_norm") is not None or given.get("padding_idx") is not None:
        return _embedding_bag(input, weight, offsets, *args, **kwargs)
    looked_up = F.embedding(input, weight)
    if weights is not None:
        looked_up = looked_up * weights[..., None]
    if mode == "max":
        return looked_up.amax(1)
    return looked_up.sum(1) if mode == "sum" else looked_up.mean(1)


def gumbel_softmax(
    logits: Tensor,
    tau: float = 1.0,
    hard: bool = False,
    eps: float = 1e-10,  # noqa: ARG001 (PyTorch's own does not use it either)
    dim: int = -1,
) -> Tensor:
    """`F.gumbel_softmax` by uniform random numbers, which a graph draws by the seed of a group."""
    uniform = torch.rand_like(logits).clamp(min=torch.finfo(logits.dtype).tiny)
    soft = ((logits - (-uniform.log()).log()) / tau).softmax(dim)
    if not hard:
        return soft
    chosen = torch.zeros_like(soft).scatter(dim, soft.argmax(dim, keepdim=True), 1.0)
    return chosen - soft.detach() + soft


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,  # noqa: ANN401 (a tensor or numbers)
    target_lengths: Any,  # noqa: ANN401
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """`F.ctc_loss` for targets [texts, length], step by step over all texts.

    Source: Graves et al., "Connectionist Temporal Classification", ICML 2006, section 4.1.
    """
    if log_probs.dim() != 3 or targets.dim() != 2:
        return _ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
    lengths, target_lengths = (torch.as_tensor(given, dtype=torch.int64) for given in (input_lengths, target_lengths))
    n_steps = len(log_probs)
    blanks = torch.full_like(targets, blank)
    labels = torch.cat((torch.stack((blanks, targets), 2).flatten(1), blanks[:, :1]), 1).to(torch.int64)
    scores = log_probs.gather(2, labels.expand(n_steps, -1, -1))
    # A label may follow the one before the blank between them, unless they are the same.
    may_skip = F.pad((labels[:, 2:] != labels[:, :-2]) & (labels[:, 2:] != blank), (2, 0))
    alpha = F.pad(scores[0, :, :2], (0, labels.shape[1] - 2), value=_NEVER)
    for step in range(1, n_steps):
        one, two = (F.pad(alpha[:, :-by], (by, 0), value=_NEVER) for by in (1, 2))
        two = two.masked_fill(~may_skip, _NEVER)
        moved = torch.stack((alpha, one, two)).logsumexp(0) + scores[step]
        alpha = torch.where((step < lengths)[:, None], moved, alpha)
    last = torch.stack((2 * target_lengths, (2 * target_lengths - 1).clamp(min=0)), 1)
    ends = alpha.gather(1, last)
    # A text without labels ends in its only blank.
    ends = torch.where(torch.stack((target_lengths >= 0, target_lengths > 0), 1), ends, _NEVER)
    losses = -ends.logsumexp(1)
    losses = torch.where(losses > -_NEVER / 2, 0.0 if zero_infinity else inf, losses)
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else (losses / target_lengths.clamp(min=1)).mean()
