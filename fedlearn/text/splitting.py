"""Splits a text in three by position: the beginning is for training, then follow validation and test."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedlearn.text.tokens import DOCUMENT_END, code_points

SHARES = (0.9, 0.95)
"""Shares of the text at which the parts for validation and for test begin."""

MAX_BOUNDARIES = 2**20
"""The most ends of documents in memory; beyond it every second one is dropped, which makes cuts a bit less even."""

Cuts = tuple[int, int, int]
"""The ends of the three parts in characters, where the end of a document counts as one."""


class Survey:
    """The length of a text and the ends of its documents."""

    def __init__(self, pieces: Iterable[str]) -> None:
        """Reads all the pieces."""
        self.n_characters = 0
        self.n_documents = 0
        self.is_blank = True
        self._interval = 1
        self._ends = np.zeros(0, dtype=np.int64)
        for piece in pieces:
            self._add(piece)

    def cuts(self) -> Cuts:
        """The positions at which to split the text; no document is cut in two.

        Raises:
            ValueError: there is too little text for three parts.
        """
        total = self.n_characters
        validation, test = (round(total * share) for share in SHARES)
        if self.n_documents:
            validation, test = _nearest(self._ends[self._ends < total], (validation, test))
        if not 0 < validation < test < total:
            of = f"{self.n_documents} document(s) of " if self.n_documents else ""
            remedy = "more documents, or choose documents = stream" if of else "a longer text"
            raise ValueError(
                "data: expected enough to split into training, validation and test, "
                f"got {of}{total} characters; give {remedy}"
            )
        return validation, test, total

    def _add(self, piece: str) -> None:
        if self.is_blank:
            self.is_blank = not piece.strip().strip(DOCUMENT_END)
        if (n_ends := piece.count(DOCUMENT_END)) > 0:
            ends = np.flatnonzero(code_points(piece) == ord(DOCUMENT_END)) + (self.n_characters + 1)
            first = -self.n_documents % self._interval
            self._ends = np.concatenate([self._ends, ends[first :: self._interval]])
            self.n_documents += n_ends
            while len(self._ends) > MAX_BOUNDARIES:
                self._ends, self._interval = self._ends[::2], 2 * self._interval
        self.n_characters += len(piece)


def split(pieces: Iterable[str], cuts: Cuts) -> Iterator[tuple[int, str]]:
    """The pieces with the number of the part that each belongs to, cut where parts end."""
    position = 0
    bounds = tuple(pairwise((0, *cuts)))
    for piece in pieces:
        for part, (start, end) in enumerate(bounds):
            if mine := piece[max(start - position, 0) : max(end - position, 0)]:
                yield part, mine
        position += len(piece)


def _nearest(ends: NDArray[np.int64], cuts: tuple[int, int]) -> tuple[int, int]:
    """Two different ends of documents near the cuts, in order; zeros if there are not two."""
    if len(ends) < 2:
        return 0, 0
    last = 1 + int(np.argmin(np.abs(ends[1:] - cuts[1])))
    return int(ends[np.argmin(np.abs(ends[:last] - cuts[0]))]), int(ends[last])
