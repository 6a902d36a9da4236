"""What a text is read from: a source may be read several times, in pieces, and never has to fit into memory."""

from collections.abc import Callable, Iterator
from typing import Protocol, final

Texts = Iterator[Iterator[str]]
"""Texts one after another (files, rows of a data set), each in pieces; a text is read before the next one begins."""


class Progress(Protocol):
    """Is told what is being done, and how far it is."""

    def begin(self, what: str, unit: str = "") -> None:
        """The next piece of work; `unit` is what is counted: bytes."""

    def reach(self, done: float, total: float | None = None) -> None:
        """So much is done, and of how much; 0 where nobody knows."""


@final
class Untold:
    """For work that nobody follows."""

    def begin(self, what: str, unit: str = "") -> None: ...

    def reach(self, done: float, total: float | None = None) -> None: ...


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
