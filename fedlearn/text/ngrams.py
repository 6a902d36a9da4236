"""Models of n-grams with add-one smoothing, which show what counting alone learns about a text."""

import numpy as np
from numpy.typing import NDArray

from fedlearn.text.tokens import TokenArray

NAMES = {1: "unigram", 2: "bigram", 3: "trigram", 4: "4-gram"}


def ngram_loss(seen: TokenArray, read: TokenArray, n: int, *, vocab_size: int) -> float:
    """Mean loss in nats per token of the text `read` [n_tokens], under the n-gram model counted on the text `seen`."""
    counted, wanted = (_ngrams(tokens, n, vocab_size) for tokens in (seen, read))
    n_whole = _count(counted, wanted)
    n_context = _count(counted // vocab_size, wanted // vocab_size)
    return float(-np.log((n_whole + 1) / (n_context + vocab_size)).mean())


def _ngrams(tokens: TokenArray, n: int, vocab_size: int) -> NDArray[np.int64]:
    """Each sequence of n tokens as one number whose digits, to the base `vocab_size`, are the tokens."""
    length = len(tokens) - n + 1
    codes = np.zeros(length, dtype=np.int64)
    for place in range(n):
        codes = codes * vocab_size + tokens[place : place + length]
    return codes


def _count(seen: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of occurrences in `seen` of each code in `wanted`."""
    codes, counts = np.unique(seen, return_counts=True)
    places = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
    return np.where(codes[places] == wanted, counts[places], 0)
