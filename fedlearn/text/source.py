"""Where texts are read from: a source can be read several times, in pieces, and need not fit into memory."""

from collections.abc import Callable, Iterator
from typing import Protocol

Progress = Callable[[int, int], None]
"""Called with the amount that is done and the amount in all, which is 0 where nobody knows it."""

Texts = Iterator[Iterator[str]]
"""Texts one after another (files, rows of a data set), each in pieces; one text is read before the next begins."""


class Source(Protocol):
    """Texts that can be read several times."""

    @property
    def name(self) -> str:
        """The source as errors name it."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all texts; 0 where nobody knows."""

    def texts(self, read: Callable[[int], None]) -> Texts:
        """All texts, with newlines at the ends of lines; `read` is called with the bytes of each piece.

        Raises:
            ValueError: a text is not there or cannot be decoded; the message names it and the remedy.
        """
