"""Writing with a causal language model of Hugging Face, in operations that many members can do at once.

The library's own `generate` branches on values. This gives the same texts: prompts are padded on the left, keys and
values are kept from step to step, and the mask is complete and made of numbers.
"""

import inspect
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol, final, runtime_checkable

import torch
from torch import Tensor, nn

from fedlearn.tasks.torch.members.batched_view import is_true_of_all


@runtime_checkable
class HuggingFaceTokenizer(Protocol):
    """The methods of a tokenizer that a task needs; those of Hugging Face have them."""

    def encode(self, text: str, /) -> list[int]:
        """The tokens of a text."""

    def decode(self, tokens: list[int], /) -> str:
        """The text of tokens."""


@final
class CausalWriter:
    """Continues prompts with the most likely tokens, or by random sampling at a temperature above 0."""

    def __init__(self, *, new_tokens: int, temperature: float, end: int | None) -> None:
        """`end` is the token that ends a text; None if there is none."""
        self._new_tokens, self._temperature, self._end = new_tokens, temperature, end

    def __call__(self, model: nn.Module, prompts: Tensor, is_text: Tensor) -> Tensor:
        """Tokens [texts, new_tokens] that continue `prompts` [texts, length]; `is_text` is False at padding.

        Tokens after an end token have no meaning; once all texts have ended, zeros fill the rest.

        Raises:
            ValueError: the model has too few positions, or no such token, or its layers see less than a whole text.
        """
        length, window = prompts.shape[1] + self._new_tokens, _window(model)
        if window is not None and length > window:
            raise ValueError(
                f"new_tokens: expected texts within the {window} tokens that layers of the model look back, "
                f"got prompts of up to {prompts.shape[1]} tokens and new_tokens {self._new_tokens}; ask for fewer, or "
                "let write= be a function of yours"
            )
        # The library is imported here, because all else needs only PyTorch.
        cache = import_module("transformers").DynamicCache()
        written, tokens = list[Tensor](), prompts
        is_over = torch.zeros_like(prompts[:, 0], dtype=torch.bool)
        for _ in range(self._new_tokens):
            try:
                logits = _read(model, tokens, is_text, cache)[:, -1]
            except IndexError as error:
                raise ValueError(_too_long(model, prompts, n_new=self._new_tokens)) from error
            newest = self._choose(logits)
            written.append(newest)
            is_over = is_over | (newest == self._end) if self._end is not None else is_over
            if is_true_of_all(is_over):
                break
            tokens = newest[:, None]
            is_text = torch.cat((is_text, torch.ones_like(is_text[:, :1])), 1)
        missing = self._new_tokens - len(written)
        return torch.stack([*written, *[torch.zeros_like(written[0])] * missing], 1)

    def log_probabilities(self, model: nn.Module, prompts: Tensor, is_text: Tensor, written: Tensor) -> Tensor:
        """The logarithms [texts] of the probabilities with which this writer draws the tokens `written` [texts, n]
        after the prompts, up to their end tokens. It must have a temperature above 0."""
        is_end = written == (-1 if self._end is None else self._end)
        counts = is_end.cumsum(1) <= is_end
        n = int(counts.any(0).sum())  # texts may all have ended long before
        written, counts = written[:, :n], counts[:, :n]
        further = written[:, :-1]
        tokens = torch.cat((prompts, further), 1)
        is_text = torch.cat((is_text, torch.ones_like(further, dtype=torch.bool)), 1)
        # Logits of a large vocabulary after each token of a long prompt would be most of the memory.
        logits = _read(model, tokens, is_text, None, n_last=n)[:, -n:]
        likely = (logits / self._temperature).log_softmax(-1)
        each = likely.gather(2, written[..., None])[..., 0]
        return each.masked_fill(~counts, 0.0).sum(1)

    def _choose(self, logits: Tensor) -> Tensor:
        """A token for each text, from logits [texts, vocabulary]."""
        if self._temperature > 0:
            # Members that draw the same numbers differ by their weights only.
            uniform = torch.rand(logits.shape, device=logits.device).clamp_min(torch.finfo(torch.float32).tiny)
            logits = logits / self._temperature - (-uniform.log()).log()
        return logits.argmax(-1)


def _read(
    model: nn.Module,
    tokens: Tensor,
    is_text: Tensor,
    cache: Any,  # noqa: ANN401 (transformers' own)
    *,
    n_last: int = 1,
) -> Tensor:
    """Logits [texts, n_last or more, vocabulary] after the newest tokens [texts, n]; `is_text` [texts, length] covers
    earlier ones, which are in the cache, too."""
    n, length = tokens.shape[1], is_text.shape[1]
    is_past = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()[-n:]
    seen = is_past & is_text[:, None, None]
    # The mask is complete and made of numbers: transformers would read the values of any other mask.
    mask = torch.zeros_like(seen, dtype=torch.float32).masked_fill(~seen, torch.finfo(torch.float32).min)
    places = (is_text.long().cumsum(1) - 1).clamp_min(0)[:, -n:]
    known = inspect.signature(model.forward).parameters
    if "attention_mask" not in known and not any(each.kind is each.VAR_KEYWORD for each in known.values()):
        raise _no_causal_model(f"{type(model).__name__}.forward({', '.join(known)})")
    more = {"position_ids": places, "logits_to_keep": n_last}
    # Since 5.24, `cache` is the name of what was `past_key_values`.
    answer = model(
        tokens,
        attention_mask=mask,
        use_cache=cache is not None,
        **{"cache" if "cache" in known else "past_key_values": cache},
        **{name: value for name, value in more.items() if name in known},
    )
    if not hasattr(answer, "logits"):
        raise _no_causal_model(f"{type(model).__name__}, which gives {type(answer).__name__}")
    logits: Tensor = answer.logits
    return logits.float()


def _window(model: nn.Module) -> int | None:
    """The number of tokens that some layers of a model look back, of which the mask knows nothing; None: all do as far
    as there are tokens."""
    config = getattr(model, "config", None)
    window, kinds = getattr(config, "sliding_window", None), getattr(config, "layer_types", None)
    is_used = getattr(config, "use_sliding_window", True) and (kinds is None or "sliding_attention" in kinds)
    return window if is_used and isinstance(window, int) else None


def _no_causal_model(received: str) -> ValueError:
    return ValueError(
        "model: expected a causal language model of transformers, which takes attention_mask and gives logits, "
        f"got {received}; or let write= be a function of yours that writes with it"
    )


def _too_long(model: nn.Module, prompts: Tensor, *, n_new: int) -> str:
    """What it means that a model has no embedding of a position or of a token."""
    config = getattr(model, "config", None)
    positions, vocabulary = (getattr(config, name, "unknown") for name in ("max_position_embeddings", "vocab_size"))
    return (
        f"new_tokens: expected texts that the model has positions ({positions}) and tokens ({vocabulary}) for, got "
        f"prompts of up to {prompts.shape[-1]} tokens and new_tokens {n_new}; ask for fewer, or take the model's own "
        "tokenizer"
    )


def padded(tokens: Sequence[Sequence[Sequence[int]]], padding: int) -> tuple[Tensor, Tensor]:
    """Prompts [groups, texts, length], padded on the left, and a mask that is True at text."""
    longest = max(len(text) for group in tokens for text in group)
    rows = [[[padding] * (longest - len(text)) + list(text) for text in group] for group in tokens]
    places = [[[False] * (longest - len(text)) + [True] * len(text) for text in group] for group in tokens]
    return torch.tensor(rows), torch.tensor(places)
