"""A conversation over TCP: the thin shell that moves bytes between a socket and a Connection."""

import asyncio
import time
from collections.abc import Callable
from typing import final

from fedlearn.wire.connection import Connection
from fedlearn.wire.errors import RemoteProtocolError
from fedlearn.wire.messages import Farewell, Message

READ_BYTES = 256 * 1024
TICK_S = 1.0
PARTING_S = 2.0
"""How long to wait, after the parting word, for the peer to close: closing first could discard it on the way."""

LINGER_S = 10.0
"""How long a socket that is done with stays, for what the peer has not taken: one that never reads gets no more."""


@final
class Channel:
    """One open socket with its Connection; a peer for which more than `max_queued_bytes` wait is dropped."""

    def __init__(
        self,
        connection: Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        max_queued_bytes: int,
    ) -> None:
        self.connection = connection
        self._max_queued_bytes = max_queued_bytes
        self._reader = reader
        self._writer = writer
        self._wake = asyncio.Event()
        self._lingering: asyncio.Task[None] | None = None

    def send(self, message: Message, payload: bytes | None = None) -> None:
        """Queues a message, with its encoding if that is known; it leaves as soon as the socket takes it."""
        self.connection.send(message, payload)
        self._wake.set()

    async def run(self, on_message: Callable[[Message], None]) -> str:
        """Moves bytes until either side is done; gives the reason. The socket is closed then, or soon after."""
        read = asyncio.create_task(self._read(on_message))
        write = asyncio.create_task(self._write())
        tick = asyncio.create_task(self._tick())
        tasks = [read, write, tick]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if write.done() and not read.done():
                await asyncio.wait([read], timeout=PARTING_S)
            return next(task.result() for task in tasks if task.done())
        except RemoteProtocolError as error:
            await self._refuse(str(error))
            return str(error)
        except OSError as error:
            return error.strerror or str(error)
        finally:
            for task in tasks:
                task.cancel()
            self._close()  # before anything is waited for: whoever is cancelled twice gets no further
            await asyncio.gather(*tasks, return_exceptions=True)

    def _close(self) -> None:
        self._writer.close()
        self._lingering = asyncio.create_task(self._linger())

    async def _linger(self) -> None:
        closed = asyncio.create_task(self._writer.wait_closed())
        await asyncio.wait([closed], timeout=LINGER_S)
        if not closed.done():
            self._writer.transport.abort()
        await asyncio.gather(closed, return_exceptions=True)

    async def _read(self, on_message: Callable[[Message], None]) -> str:
        while data := await self._reader.read(READ_BYTES):
            for message in self.connection.receive_data(data, time.monotonic()):
                on_message(message)
            self._wake.set()  # an answer to a Ping may wait
            if self.connection.is_over:
                return "the conversation is over"
        return "the connection was closed"

    async def _write(self) -> str:
        while True:
            while data := self.connection.data_to_send():
                self._writer.write(data)
                await self._writer.drain()
            if self.connection.is_over:
                return "the conversation is over"
            self._wake.clear()
            await self._wake.wait()

    async def _tick(self) -> str:
        while True:
            await asyncio.sleep(TICK_S)
            self.connection.tick(time.monotonic())
            self._wake.set()
            if self.connection.bytes_queued > self._max_queued_bytes:
                return f"it reads too slowly: {self.connection.bytes_queued} bytes are waiting"

    async def _refuse(self, reason: str) -> None:
        """Tells a client why it is cut off, if the line still takes it."""
        try:
            printable = "".join(c if c.isprintable() else "?" for c in reason)
            self.connection.send(Farewell("refused", printable[:1000]))
            self._writer.write(self.connection.data_to_send())
            await asyncio.wait_for(self._writer.drain(), PARTING_S)
        except Exception:  # it broke the protocol: whatever goes wrong here is its loss
            return
