"""Where texts are read from: a source can be read several times, in pieces, and need not fit into memory."""

from collections.abc import Callable, Iterator
from typing import Protocol, final

Texts = Iterator[Iterator[str]]
"""Texts one after another (files, rows of a data set), each in pieces; one text is read before the next begins."""


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
