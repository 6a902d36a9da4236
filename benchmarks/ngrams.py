"""n-gram models with add-one smoothing: what counting alone learns of a text."""

import numpy as np

from fedlearn.tasks.rnn.dataset import Dataset
from fedlearn.text.documents import EncodedText
from fedlearn.text.tokens import TokenArray

NAMES = {1: "unigram", 2: "bigram", 3: "trigram", 4: "4-gram"}


def ngram_bits(dataset: Dataset, n: int, text: EncodedText) -> float:
    """Bits per character of `text` under the n-gram model counted on the training part."""
    vocab_size = dataset.tokenizer.vocab_size
    seen, read = (_ngrams(tokens, n, vocab_size) for tokens in (dataset.train.tokens, text.tokens))
    n_whole = _count(seen, read)
    n_context = _count(seen // vocab_size, read // vocab_size)
    return text.bits_per_character(float(-np.log((n_whole + 1) / (n_context + vocab_size)).mean()))


def _ngrams(tokens: TokenArray, n: int, vocab_size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Each run of n tokens as one number whose last digit, to the base of `vocab_size`, is its last token."""
    length = len(tokens) - n + 1
    codes = np.zeros(length, dtype=np.int64)
    for place in range(n):
        codes = codes * vocab_size + tokens[place : place + length]
    return codes


def _count(seen: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """How often each wanted code was seen."""
    codes, counts = np.unique(seen, return_counts=True)
    places = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
    return np.where(codes[places] == wanted, counts[places], 0)
