"""What a text is read from: a source may be read several times, in pieces, and never has to fit into memory."""

from collections.abc import Callable, Iterator
from typing import Protocol

Progress = Callable[[int, int], None]
"""Is told how much of something is done, and of how much; 0 where nobody knows."""

Texts = Iterator[Iterator[str]]
"""Texts one after another (files, rows of a data set), each in pieces; a text is read before the next one begins."""


class Source(Protocol):
    """Where texts come from."""

    @property
    def name(self) -> str:
        """As errors say it."""

    @property
    def size_bytes(self) -> int:
        """Of all texts; 0 where nobody knows."""

    def texts(self, read: Callable[[int], None]) -> Texts:
        """All texts, with newlines at the ends of lines; `read` is told the bytes of each piece.

        Raises:
            ValueError: a text can't be had or can't be decoded; the message names it and the remedy.
        """
