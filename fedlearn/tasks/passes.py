"""Rows in passes over the data: each pass sees every row once, in an order of its own, as in epochs elsewhere."""

from typing import final

import numpy as np
from numpy.typing import NDArray

import es_core
from fedlearn.es.trials import Trials
from fedlearn.tasks.blocks import Columns, drawn_rows, n_rows

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

    def columns(self, data: Columns, trials: Trials, words: NDArray[np.uint64]) -> Columns:
        """The rows of each member without noise, [n_members, batch_size, ...] of each column.

        They begin in a pass where those of the member before end, or are drawn by the member's `words`.
        """
        per_step = trials.perturbation.pass_members
        if not (per_step and data):
            return drawn_rows(data, words)
        size = words.shape[1] - 1
        first, count = (trials.step * per_step + trials.first_member) * size, trials.n_members * size
        rows = self.rows(first, count, n_rows=n_rows(data)).reshape(-1, size)
        return {name: column[rows] for name, column in data.items()}

    def _order(self, number: int, n_rows: int) -> NDArray[np.int64]:
        last = self._last
        if last is None or last[0] != number or len(last[1]) != n_rows:
            words = es_core.random_words(self._seed, number % 2**32, STREAM, 1, n_rows)[0]
            last = self._last = (number, np.argsort(words, kind="stable").astype(np.int64))
        return last[1]
