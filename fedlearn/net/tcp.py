"""A stream over a socket: TCP, or TLS where its ends were made with a context."""

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import final

READ_LIMIT_BYTES = 32 * 1024
"""Limit of asyncio's streams: they hold at most twice as many unread bytes, then the sender must wait."""

UNSENT_BYTES = 64 * 1024
"""Bytes that the system buffers for a slow connection: bytes that still wait here can be replaced by newer ones."""

PIECE_BYTES = 64 * 1024
"""Bytes that are taken from one connection before others have their turn."""


@final
class _Inbox(threading.local):
    """A buffer for each thread, filled and emptied in one call, so that connections need none of their own."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(PIECE_BYTES))


_inbox = _Inbox()


@final
class _Pushing(asyncio.BufferedProtocol):
    """Passes the bytes that come to `taken`, and everything else to the protocol of the stream reader."""

    def __init__(self, inner: asyncio.StreamReaderProtocol, taken: Callable[[bytes], None]) -> None:
        self._inner = inner
        self._taken: Callable[[bytes], None] | None = taken

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return _inbox.view

    def buffer_updated(self, nbytes: int) -> None:
        if self._taken is not None:
            self._taken(bytes(_inbox.view[:nbytes]))

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._taken = None
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


@final
class TcpStream:
    """The reader and the writer that asyncio gives for a connection, as one stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        line = writer.get_extra_info("socket")
        is_tcp = line is not None and line.family in (socket.AF_INET, socket.AF_INET6)
        if is_tcp and hasattr(socket, "TCP_NOTSENT_LOWAT"):
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        # Nothing is copied aside that the system does not take: what waits is shared with other peers until it leaves.
        # With 0, asyncio's TLS would take nothing at all, and a drain would wait for ever.
        has_tls = writer.get_extra_info("ssl_object") is not None
        writer.transport.set_write_buffer_limits(high=int(has_tls))

    @property
    def peer_address(self) -> str:
        address = self._writer.get_extra_info("peername")
        return str(address[0]) if isinstance(address, tuple) else ""

    @property
    def unsent_bytes(self) -> int:
        return self._writer.transport.get_write_buffer_size()

    async def read(self, max_bytes: int) -> bytes:
        return await self._reader.read(max_bytes)

    def push_to(self, taken: Callable[[bytes], None]) -> bool:
        """Spares each piece the wake-up of a reading task, which costs as much as the system call."""
        transport = self._writer.transport
        inner = transport.get_protocol()
        if not isinstance(inner, asyncio.StreamReaderProtocol) or self._reader.at_eof() or transport.is_closing():
            return False
        transport.set_protocol(_Pushing(inner, taken))
        return True

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    def close(self) -> None:
        # asyncio's TLS transport, closed twice, forgets what it waits for, and raises when it is asked.
        if not self._writer.transport.is_closing():
            self._writer.close()

    def abort(self) -> None:
        transport = self._writer.transport
        if transport.get_write_buffer_size() or not transport.is_closing():
            transport.abort()  # asyncio does not allow it on a transport that has closed
