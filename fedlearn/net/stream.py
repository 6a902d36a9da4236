"""What a channel needs of a line, be it TCP, TLS or memory: bytes in order, both ways."""

from collections.abc import Callable
from typing import Protocol


class Stream(Protocol):
    """One end of a line."""

    @property
    def peer_address(self) -> str:
        """Who is at the other end: an IP address, or another name where there is none."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes written that have not left this process."""

    async def read(self, max_bytes: int) -> bytes:
        """What came next, at least a byte; empty once the other end writes no more.

        Raises:
            OSError: the line broke.
        """

    def push_to(self, taken: Callable[[bytes], None]) -> bool:
        """Gives what comes from now on to `taken` at once, piece by piece; `read` then waits for the end of the line.

        To be called where nothing waits to be read; False, and nothing changes, of a line that can't.
        """

    def write(self, data: bytes) -> None:
        """Hands over bytes to send; never waits."""

    async def drain(self) -> None:
        """Waits until all that was written has left this process.

        Raises:
            OSError: the line broke.
        """

    def close(self) -> None:
        """Ends the line behind what was written."""

    def abort(self) -> None:
        """Ends the line at once; what has not left this process is dropped."""
