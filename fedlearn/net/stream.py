"""The interface between a channel and a transport (TCP, TLS or memory): bytes in order, both ways."""

from collections.abc import Callable
from typing import Protocol


class Stream(Protocol):
    """One end of a connection."""

    @property
    def peer_address(self) -> str:
        """The IP address at the other end, or another name where there is none."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes written that have not left this process."""

    async def read(self, max_bytes: int) -> bytes:
        """The bytes that came next, at least one; empty once the other end writes no more.

        Raises:
            OSError: the line broke.
        """

    def push_to(self, taken: Callable[[bytes], None]) -> bool:
        """Gives all further bytes to `taken` at once, piece by piece; `read` then waits for the end of the connection.

        Call it only where nothing waits to be read. Gives False where the transport cannot do that; nothing has changed
        then.
        """

    def write(self, data: bytes) -> None:
        """Hands over bytes to send; never waits."""

    async def drain(self) -> None:
        """Waits until all that was written has left this process.

        Raises:
            OSError: the line broke.
        """

    def close(self) -> None:
        """Closes the connection once all written bytes have left."""

    def abort(self) -> None:
        """Closes the connection at once; bytes that have not left this process are dropped."""
