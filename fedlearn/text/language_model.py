"""The interface of a model that can be sampled or searched, and the result."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.text.tokens import TokenArray, as_tokens

State = NDArray[np.float32]
"""The state [n, ...] whose row i is what the model remembers of sequence i, for instance [n, layers, hidden]."""
LogProbabilities = NDArray[np.float32]
"""Log-probabilities in nats, [n, vocab_size]."""


class LanguageModel(Protocol):
    """Predicts the next token of n independent sequences; a pure function of its arguments."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def stop_token(self) -> int:
        """The token that ends a document."""

    @property
    def start(self) -> TokenArray:
        """The tokens [n] that are read in place of an empty prompt."""

    def initial_state(self, n_sequences: int) -> State:
        """The state [n_sequences, ...] before any token."""

    def next_log_probabilities(self, state: State, tokens: TokenArray) -> tuple[State, LogProbabilities]:
        """Reads one token per sequence, `tokens` [n], in state `state` [n, ...], which stays as it was.

        Gives the new state [n, ...], and the log-probabilities [n, vocab_size] of the next tokens.
        """


class Continuation(msgspec.Struct, frozen=True, eq=False):
    """A text that a model wrote after a prompt."""

    tokens: TokenArray
    """The tokens [n], without the prompt and without `<stop>`."""
    log_probability: float
    """Sum over the predictions, in nats at temperature 1, that of `<stop>` included where it ended the text."""
    is_stopped: bool
    """Whether the model ended the text with `<stop>`."""


def last_of(steps: Iterable[Continuation]) -> Continuation:
    """The last continuation, which is the whole text."""
    return deque(steps, maxlen=1).pop()


def read_prompt(
    model: LanguageModel, prompt: Sequence[int] | NDArray[np.integer]
) -> tuple[TokenArray, State, LogProbabilities]:
    """The tokens read, the state [1, ...] after them and the log-probabilities [1, vocab_size] of the next token.

    Raises:
        ValueError: a token is outside the vocabulary, or the model gives NaN.
    """
    tokens = as_tokens(prompt if len(prompt) else model.start, vocab_size=model.vocab_size)
    state = model.initial_state(1)
    for index in range(len(tokens) - 1):
        state, _ = model.next_log_probabilities(state, tokens[index : index + 1])
    return tokens, *read_tokens(model, state, tokens[-1:])


def read_tokens(model: LanguageModel, state: State, tokens: TokenArray) -> tuple[State, LogProbabilities]:
    """Calls `next_log_probabilities` and checks the result.

    Raises:
        ValueError: the model gives NaN.
    """
    new_state, log_probabilities = model.next_log_probabilities(state, tokens)
    if np.isnan(log_probabilities).any():
        raise ValueError(
            "log-probabilities: expected numbers, got NaN; the weights diverged; take an earlier checkpoint"
        )
    return new_state, log_probabilities
