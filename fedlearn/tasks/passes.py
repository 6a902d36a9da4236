"""Rows in passes over the data: each pass sees every row once, in an order of its own, as in epochs elsewhere."""

from typing import final

import numpy as np
from numpy.typing import NDArray

import es_core

STREAM = 2**62
"""The stream of the random words that order a pass, far from those of groups."""


@final
class Passes:
    """Gives the rows at places of one endless sequence, which is pass after pass; equal wherever the seed is."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._last: tuple[int, NDArray[np.int64]] | None = None

    def rows(self, first: int, count: int, *, n_rows: int) -> NDArray[np.int64]:
        """Numbers of the rows at `count` places from the place `first` on, of data of `n_rows` rows."""
        pieces: list[NDArray[np.int64]] = []
        while count > 0:
            number, begun = divmod(first, n_rows)
            pieces.append(self._order(number, n_rows)[begun : begun + count])
            first, count = first + len(pieces[-1]), count - len(pieces[-1])
        return np.concatenate(pieces)

    def _order(self, number: int, n_rows: int) -> NDArray[np.int64]:
        last = self._last
        if last is None or last[0] != number or len(last[1]) != n_rows:
            words = es_core.random_words(self._seed, number % 2**32, STREAM, 1, n_rows)[0]
            last = self._last = (number, np.argsort(words, kind="stable").astype(np.int64))
        return last[1]
