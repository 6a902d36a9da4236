"""A stream over a socket: TCP, or TLS where its ends were made with a context."""

import asyncio
import socket
from typing import final

READ_LIMIT_BYTES = 32 * 1024
"""For `asyncio.start_server` and `open_connection`: twice as much waits unread at most, then the sender must wait."""

UNSENT_BYTES = 64 * 1024
"""That the system takes ahead of a slow line: what waits here can still be replaced by something better."""


@final
class TcpStream:
    """The two ends that asyncio gives for a connection, as one stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        line = writer.get_extra_info("socket")
        is_tcp = line is not None and line.family in (socket.AF_INET, socket.AF_INET6)
        if is_tcp and hasattr(socket, "TCP_NOTSENT_LOWAT"):
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        # Nothing is copied aside that the system does not take: what waits is shared with other peers until it leaves.
        writer.transport.set_write_buffer_limits(high=0)

    @property
    def peer_address(self) -> str:
        address = self._writer.get_extra_info("peername")
        return str(address[0]) if isinstance(address, tuple) else ""

    @property
    def unsent_bytes(self) -> int:
        return self._writer.transport.get_write_buffer_size()

    async def read(self, max_bytes: int) -> bytes:
        return await self._reader.read(max_bytes)

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        transport = self._writer.transport
        if transport.get_write_buffer_size() or not transport.is_closing():
            transport.abort()  # which asyncio does not take from who is closed already
