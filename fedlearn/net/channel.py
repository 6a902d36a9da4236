"""A conversation over a stream: the thin shell that moves bytes between a stream and a Connection."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import final

from fedlearn.net.stream import Stream
from fedlearn.wire.connection import Connection
from fedlearn.wire.encoding.parcel import Parcel
from fedlearn.wire.errors import FloodError, RemoteProtocolError
from fedlearn.wire.messages import Message

READ_BYTES = 64 * 1024
WRITE_BYTES = 64 * 1024
"""Bytes copied at a time out of parcels, which peers share."""

TICK_S = 1.0
STALL_S = 20.0
"""Seconds after which a peer is dropped that takes none of the bytes that wait for it."""

LATE_S = 5.0
"""Delay of a tick, in seconds, that shows that this process was suspended, or that others had the processor."""

PARTING_S = 2.0
"""Seconds after the parting word for the peer to close: closing first might discard that word."""

OVER = "the conversation is over"


@final
class Channel:
    """One open stream with its Connection; a peer for which more than `max_queued_bytes` wait is dropped.

    Attributes:
        has_erred: whether the peer was cut off because it broke a rule of the protocol.
        has_flooded: whether that rule was how much it may send.
        waiting_since: the last time at which nothing waited, for the peer or from it.
    """

    def __init__(self, connection: Connection, stream: Stream, *, max_queued_bytes: int) -> None:
        self.connection = connection
        self.has_erred = self.has_flooded = False
        self.waiting_since = time.monotonic()
        self._stream = stream
        self._max_queued_bytes = max_queued_bytes
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._dropped: asyncio.Future[str] = self._loop.create_future()
        self._is_flush_due = False
        self._is_closed = False
        self._bytes_taken = 0
        self._taken_at = self.waiting_since
        self._bytes_before = 0
        self._ticked_at = self.waiting_since

    @property
    def peer_address(self) -> str:
        """The address of the peer."""
        return self._stream.peer_address

    @property
    def private_bytes(self) -> int:
        """Bytes held for this peer alone: unfinished messages from it, and copied bytes that have not left."""
        return self.connection.bytes_held + self._stream.unsent_bytes

    def pace_bytes_per_s(self, now: float) -> float:
        """Bytes a second that the peer has taken and sent since something has been waiting."""
        moved = self.connection.bytes_in + self.connection.bytes_out - self._stream.unsent_bytes
        return (moved - self._bytes_before) / max(now - self.waiting_since, 1.0)

    def send(self, message: Message, parcel: Parcel | None = None) -> None:
        """Queues a message, with its parcel where there is one; it leaves as soon as the line takes it."""
        self.connection.send(message, parcel)
        self._flush_soon()

    def drop(self, reason: str) -> None:
        """Ends the conversation now; `run` then gives the reason."""
        if not self._dropped.done():
            self._dropped.set_result(reason)

    async def run(self, on_message: Callable[[Message], None]) -> str:
        """Moves bytes until either side is done; gives the reason. Afterwards nothing is held for the peer."""
        read = asyncio.create_task(self._read(on_message))
        write = asyncio.create_task(self._write())
        ends: list[asyncio.Future[str]] = [read, write, self._dropped]
        self._ticked_at = time.monotonic()
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self._flush_soon()
        all_sent = False
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            all_sent = write.done() and write.exception() is None
            if all_sent and not read.done():
                await asyncio.wait([read, self._dropped], timeout=PARTING_S, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                if end.done():
                    return end.result()
            raise AssertionError("waited for an end, and there is none")
        except RemoteProtocolError as error:
            error.with_traceback(None)  # whoever keeps the error must not keep the frames and all that is in them
            self.has_erred, self.has_flooded = True, isinstance(error, FloodError)
            await self._say_why(str(error))
            return str(error)
        except OSError as error:
            error.with_traceback(None)  # the reader keeps it
            return error.strerror or str(error)
        finally:
            if self._dropped.done():
                self._dropped.exception()  # otherwise asyncio would report it where another end came first
            for end in ends:
                end.cancel()
            self._close(all_sent=all_sent)  # before any wait: a task that is cancelled twice gets no further
            await asyncio.gather(read, write, return_exceptions=True)
            # An error holds its frames and those of its causes, with all that the peer said; they hold this channel:
            # so neither this frame nor the channel may hold the error.
            del read, write, end
            ends.clear()
            self._dropped = self._loop.create_future()
            self._dropped.set_result(OVER)

    def _close(self, *, all_sent: bool) -> None:
        self._is_closed = True
        self._timer.cancel()
        if all_sent:
            self._stream.close()
        else:
            self._stream.abort()
        self.connection.forget()

    async def _read(self, on_message: Callable[[Message], None]) -> str:
        is_pushed = False
        while data := await self._stream.read(READ_BYTES):
            if self._take(data, on_message):
                return OVER
            if len(data) == READ_BYTES:
                await asyncio.sleep(0)  # more waits here, and would be read before anybody else's
            elif not is_pushed:
                is_pushed = self._stream.push_to(lambda data: self._pushed(data, on_message))
        return "the connection was closed"

    def _pushed(self, data: bytes, on_message: Callable[[Message], None]) -> None:
        """Takes data as it comes; an error ends this conversation and must not reach the event loop."""
        if self._is_closed or self._dropped.done():
            return
        try:
            if self._take(data, on_message):
                self.drop(OVER)
        except Exception as error:
            if not self._dropped.done():
                self._dropped.set_exception(error)

    def _take(self, data: bytes, on_message: Callable[[Message], None]) -> bool:
        """Takes the data; gives whether it was the peer's last.

        Data after our own last word are dropped: a socket that is closed with bytes unread takes back the last ones
        that were sent.
        """
        if self.connection.is_over:
            return False
        for message in self.connection.receive_data(data, time.monotonic()):
            on_message(message)
        if self.connection.bytes_queued:
            self._flush_soon()  # an answer to a Ping may wait
        return self.connection.is_over

    def _flush_soon(self) -> None:
        """Schedules one flush for all that is queued before the event loop comes round."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Writes the bytes that wait as far as the socket takes them at once; otherwise, and at the end, the writer is
        woken."""
        self._is_flush_due = False
        if self._is_closed:
            return
        if self._stream.unsent_bytes == 0 and (data := self.connection.data_to_send(WRITE_BYTES)):
            self._stream.write(data)
        if self.connection.bytes_queued or self.connection.is_over:
            self._wake.set()

    async def _write(self) -> str:
        while True:
            await self._stream.drain()
            while data := self.connection.data_to_send(WRITE_BYTES):
                self._stream.write(data)
                await self._stream.drain()
                await asyncio.sleep(0)  # a line that takes everything at once would never give others a turn
            if self.connection.is_over:
                return OVER
            self._wake.clear()
            await self._wake.wait()

    def _tick(self) -> None:
        now = time.monotonic()
        self._timer = self._loop.call_later(TICK_S, self._tick)
        late_s, self._ticked_at = now - self._ticked_at - TICK_S, now
        if late_s >= LATE_S:
            # That is no silence of the peer's: what it said meanwhile has not been read yet.
            self.connection.excuse(late_s)
            self._taken_at += late_s
        try:
            self.connection.tick(now)
            self._check_progress(now)
        except RemoteProtocolError as error:
            if not self._dropped.done():
                self._dropped.set_exception(error)
        self._flush_soon()

    def _check_progress(self, now: float) -> None:
        waiting = self._stream.unsent_bytes + self.connection.bytes_queued
        taken = self.connection.bytes_out - self._stream.unsent_bytes
        if waiting == 0 or taken != self._bytes_taken:
            self._bytes_taken, self._taken_at = taken, now
        if waiting == 0 and self.connection.bytes_held == 0:
            self.waiting_since, self._bytes_before = now, taken + self.connection.bytes_in
        if waiting and now - self._taken_at >= STALL_S:
            self.drop(f"it does not read: {waiting} bytes have waited for {STALL_S:g} s")
        elif self.connection.bytes_queued > self._max_queued_bytes:
            self.drop(f"it reads too slowly: {self.connection.bytes_queued} bytes are waiting")

    async def _say_why(self, reason: str) -> None:
        """Tells the peer the reason why it is cut off, if the socket takes that at once."""
        word = self.connection.last_word("refused", reason)
        if word and self._stream.unsent_bytes == 0:
            self._stream.write(word)
            with suppress(OSError, TimeoutError):
                await asyncio.wait_for(self._stream.drain(), PARTING_S)
