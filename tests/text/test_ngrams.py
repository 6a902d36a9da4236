import math

import numpy as np
import pytest

from fedlearn.text.ngrams import ngram_loss
from fedlearn.text.tokens import TokenArray

VOCAB_SIZE = 3


def tokens_of(*tokens: int) -> TokenArray:
    return np.array(tokens, dtype=np.uint16)


def counted_by_hand(seen: TokenArray, read: TokenArray, n: int) -> float:
    grams = [tuple(seen[i : i + n]) for i in range(len(seen) - n + 1)]
    losses = []
    for place in range(len(read) - n + 1):
        gram = tuple(read[place : place + n])
        n_context = sum(other[:-1] == gram[:-1] for other in grams)
        losses.append(-math.log((grams.count(gram) + 1) / (n_context + VOCAB_SIZE)))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_loss_is_that_of_counting_by_hand(n: int) -> None:
    generator = np.random.default_rng(1)
    seen, read = (generator.integers(0, VOCAB_SIZE, size).astype(np.uint16) for size in (60, 20))
    assert ngram_loss(seen, read, n, vocab_size=VOCAB_SIZE) == pytest.approx(counted_by_hand(seen, read, n))


def test_what_was_never_seen_is_one_of_the_vocabulary() -> None:
    loss = ngram_loss(tokens_of(0, 0, 0), tokens_of(1, 2), 2, vocab_size=VOCAB_SIZE)
    assert loss == pytest.approx(math.log(VOCAB_SIZE))
