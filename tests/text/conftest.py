from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from fedlearn.text.language_model import LanguageModel, LogProbabilities, State
from fedlearn.text.tokens import TokenArray


class _MarkovModel:
    """The next token depends on the last two: `table[before, last]`; before the first token stands 0."""

    def __init__(self, table: NDArray[np.float32], stop_token: int) -> None:
        self.table = table
        self.vocab_size = table.shape[-1]
        self.stop_token = stop_token
        self.start = np.array([stop_token], dtype=np.uint16)

    def initial_state(self, n_sequences: int) -> State:
        return np.zeros((n_sequences, 1), dtype=np.float32)

    def next_log_probabilities(self, state: State, tokens: TokenArray) -> tuple[State, LogProbabilities]:
        before = state[:, 0].astype(np.int64)
        return tokens[:, None].astype(np.float32), self.table[before, tokens]


@pytest.fixture(scope="session")
def markov_model() -> Callable[[NDArray[np.float64], int], LanguageModel]:
    def build(weights: NDArray[np.float64], stop_token: int) -> LanguageModel:
        """`weights` [vocab, vocab, vocab], or fewer axes to share rows; each row is divided by its sum."""
        vocab_size = weights.shape[-1]
        full = np.broadcast_to(weights, (vocab_size, vocab_size, vocab_size))
        with np.errstate(divide="ignore"):
            table = np.log(full / full.sum(axis=-1, keepdims=True)).astype(np.float32)
        return _MarkovModel(table, stop_token)

    return build
