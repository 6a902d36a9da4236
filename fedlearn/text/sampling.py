"""Random sampling of text, with temperature, top-k and top-p (nucleus sampling).

Source: Holtzman et al. 2020, https://arxiv.org/abs/1904.09751.
"""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.text.language_model import Continuation, LanguageModel, last_of, read_prompt, read_tokens
from fedlearn.text.repetition import forbid_repeats, penalise_repeats


class Manner(msgspec.Struct, frozen=True, kw_only=True):
    """The rules by which tokens are drawn.

    Raises:
        ValueError: a value is out of its range.
    """

    temperature: float = 0.6
    """Divides the log-probabilities; 0 takes the likeliest token. At 1 the text of small models is hard to read."""
    top_k: int = 0
    """The number of likeliest tokens to draw from; 0 means all."""
    top_p: float = 1.0
    """The share of probability that the tokens to draw from must reach; the fewest that reach it are taken."""
    repetition_penalty: float = 1.0
    """The factor that makes tokens already in the text less likely; see `penalise_repeats`."""
    no_repeat_ngram: int = 0
    """The length of token sequences that may not occur twice in the text; 0 means no limit."""

    def __post_init__(self) -> None:
        for name, is_good, expected in (
            ("temperature", 0 <= self.temperature < np.inf, "0 or more"),
            ("top_k", self.top_k >= 0, "0 or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("repetition_penalty", 1 <= self.repetition_penalty < np.inf, "1 or more"),
            ("no_repeat_ngram", self.no_repeat_ngram >= 0, "0 or more"),
        ):
            if not is_good:
                raise ValueError(f"{name}: expected {expected}, got {getattr(self, name)}")


def sample(
    model: LanguageModel,
    prompt: Sequence[int] | NDArray[np.integer],
    *,
    length: int,
    generator: np.random.Generator,
    manner: Manner,
) -> Continuation:
    """A continuation of at most `length` tokens, shorter if `<stop>` is drawn; see `choose_token`.

    Raises:
        ValueError: an argument is out of its range, or the model gives NaN.
    """
    return last_of(sampled(model, prompt, length=length, generator=generator, manner=manner))


def sampled(
    model: LanguageModel,
    prompt: Sequence[int] | NDArray[np.integer],
    *,
    length: int,
    generator: np.random.Generator,
    manner: Manner,
) -> Iterator[Continuation]:
    """The text as it grows: the continuation after each token, the last of which is whole.

    Raises:
        ValueError: an argument is out of its range, or the model gives NaN.
    """
    if length < 0:
        raise ValueError(f"length: expected 0 or more, got {length}")
    text, state, log_probabilities = read_prompt(model, prompt)
    n_read, total = len(text), 0.0
    yield Continuation(text[n_read:], total, is_stopped=False)
    for _ in range(length):
        varied = forbid_repeats(log_probabilities, text[np.newaxis], manner.no_repeat_ngram)[0]
        token = choose_token(penalise_repeats(varied, text, manner.repetition_penalty), manner, generator)
        total += float(log_probabilities[0, token])
        if token == model.stop_token:
            yield Continuation(text[n_read:], total, is_stopped=True)
            return
        text = np.append(text, np.uint16(token))
        yield Continuation(text[n_read:], total, is_stopped=False)
        state, log_probabilities = read_tokens(model, state, text[-1:])


def choose_token(log_probabilities: NDArray[np.float32], manner: Manner, generator: np.random.Generator) -> int:
    """Draws a token by its log-probability [vocab_size] (nats), with one number of the `generator`.

    Of equally likely tokens the lower one goes first.
    """
    number = generator.random()
    if manner.temperature == 0:
        return int(np.argmax(log_probabilities))
    weights = np.exp((log_probabilities.astype(np.float64) - np.max(log_probabilities)) / manner.temperature)
    order = np.argsort(-weights, kind="stable")[: manner.top_k or None]
    cumulative = np.cumsum(weights[order])
    last = np.searchsorted(cumulative, manner.top_p * cumulative[-1])
    return int(order[np.searchsorted(cumulative, number * cumulative[last])])
