"""A connection in memory, as a stream that a channel can use."""

import asyncio
from collections.abc import Callable
from typing import Self, final


@final
class MemoryStream:
    """One end of a connection in memory; at most `capacity_bytes` are in flight, the rest waits at the sender."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._arrived = bytearray()
        self._unsent = bytearray()
        self._changed = asyncio.Event()
        self._is_closed = False
        self._other: MemoryStream = self

    @classmethod
    def pair(cls, capacity_bytes: int = 64 * 1024) -> tuple[Self, Self]:
        """The two ends of a connection."""
        one, two = cls(capacity_bytes), cls(capacity_bytes)
        one._other, two._other = two, one
        return one, two

    @property
    def peer_address(self) -> str:
        return "memory"

    @property
    def unsent_bytes(self) -> int:
        return len(self._unsent)

    async def read(self, max_bytes: int) -> bytes:
        while not self._arrived:
            if self._other._is_closed or self._is_closed:
                return b""
            await self._change()
        data = bytes(self._arrived[:max_bytes])
        del self._arrived[:max_bytes]
        self._other._move()
        return data

    def push_to(self, taken: Callable[[bytes], None]) -> bool:
        del taken
        return False

    def write(self, data: bytes) -> None:
        if not self._is_closed:
            self._unsent += data
            self._move()

    async def drain(self) -> None:
        while self._unsent:
            if self._other._is_closed or self._is_closed:
                raise ConnectionResetError("the other end is closed")
            await self._change()

    def close(self) -> None:
        self._end()

    def abort(self) -> None:
        self._unsent.clear()
        self._end()

    def _move(self) -> None:
        room = self._capacity_bytes - len(self._other._arrived)
        self._other._arrived += self._unsent[:room]
        del self._unsent[:room]
        self._tell()

    def _end(self) -> None:
        self._other._arrived += self._unsent
        self._unsent.clear()
        self._is_closed = True
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._other._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
