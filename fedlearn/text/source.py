"""Sources of texts, which can be read several times, in pieces, and need not fit into memory."""

from collections.abc import Callable, Iterator
from typing import Protocol, final

Texts = Iterator[Iterator[str]]
"""Texts one after another (files, rows of a data set), each in pieces; a text is read before the next begins."""


class Progress(Protocol):
    """A receiver of reports about work that takes long."""

    def begin(self, what: str, unit: str = "") -> None:
        """Begins the next piece of work; `unit` is the unit of its amounts, such as bytes."""

    def reach(self, done: float, total: float | None = None) -> None:
        """Reports the amount that is done, and the whole amount if it is known."""


@final
class NoProgress:
    """A receiver that ignores all reports."""

    def begin(self, what: str, unit: str = "") -> None: ...

    def reach(self, done: float, total: float | None = None) -> None: ...


class Source(Protocol):
    """Texts that can be read several times."""

    @property
    def name(self) -> str:
        """The name of the source in errors."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all texts; 0 if they are not known."""

    def texts(self, read: Callable[[int], None]) -> Texts:
        """All texts, with newlines at the ends of lines; `read` is called with the bytes of each piece.

        Raises:
            ValueError: a text is not there or cannot be decoded; the message names it and the remedy.
        """
