"""A line between a volunteer and its server that is as bad as a test wants it: late, slow, lossy, or cut.

A packet that is lost is sent again by TCP, and all behind it wait: in user space that is a piece that comes later.
"""

import asyncio
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

from tests.patience import LIMIT_S

PIECE_BYTES = 4096
PACKET_BYTES = 1448
RESENT_S = 0.2
"""The least time after which TCP sends again what was not acknowledged, on Linux."""

BUFFER_BYTES = 16 * 1024
"""That the line itself takes ahead; with the system's own it would be megabytes, and no line is like that."""


@final
class Link:
    """Forwards TCP connections; what goes in comes out `delay_s` later, and at most `bytes_per_s` each way.

    A share of `loss` of the packets takes `RESENT_S` and another round trip more.
    """

    def __init__(self, target: int, *, delay_s: float, bytes_per_s: float, loss: float) -> None:
        self.port = 0
        self._random = random.Random(0)
        self._loss = loss
        self._ends: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self._target, self._delay_s, self._bytes_per_s = target, delay_s, bytes_per_s
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._is_open = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._is_open.wait(LIMIT_S)

    def close(self) -> None:
        """Cuts whatever goes through."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    def cut(self) -> None:
        """Ends what goes through, and lets nothing through until `mend`."""
        self._loop.call_soon_threadsafe(self._cut)

    def mend(self) -> None:
        """Lets connections through again."""
        self._is_cut = False

    def _cut(self) -> None:
        self._is_cut = True
        for end in list(self._ends):
            end.transport.abort()

    def _run(self) -> None:
        self._loop.create_task(self._listen())
        self._loop.run_forever()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self._is_open.set()

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._drop(*self._ends)
        await asyncio.sleep(0)  # in which sockets are closed

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._ends.add(writer)
        self._loop.create_task(self._carry(reader, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = socket.socket()
        there.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)  # before it connects, or it is ignored
        there.setblocking(False)
        try:
            if self._is_cut:
                raise ConnectionError
            await self._loop.sock_connect(there, ("127.0.0.1", self._target))
            there_reader, there_writer = await asyncio.open_connection(sock=there, limit=PIECE_BYTES)
        except (OSError, asyncio.CancelledError):  # nobody is there any more, or the test is over
            there.close()
            self._drop(writer)
            return
        self._ends.add(there_writer)
        ways = [self._forward(reader, there_writer), self._forward(there_reader, writer)]
        tasks = [asyncio.create_task(way) for way in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            return  # the test is over; asyncio would report it
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._drop(writer, there_writer)

    def _drop(self, *ends: asyncio.StreamWriter) -> None:
        for end in ends:
            self._ends.discard(end)
            end.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One way. The next piece may be under way while the one before is: a line delays, it does not wait."""
        loop, free_at, arrived_at = asyncio.get_running_loop(), 0.0, 0.0
        while data := await reader.read(PIECE_BYTES):
            free_at = max(free_at, loop.time()) + len(data) / self._bytes_per_s
            n_packets = -(-len(data) // PACKET_BYTES)
            is_lost = self._random.random() > (1.0 - self._loss) ** n_packets
            arrived_at = max(arrived_at, free_at + self._delay_s + is_lost * (RESENT_S + 2.0 * self._delay_s))
            loop.call_at(arrived_at, writer.write, data)
            if (ahead_s := free_at - loop.time()) > self._delay_s:
                await asyncio.sleep(ahead_s - self._delay_s)


@contextmanager
def link_to(target: int, *, delay_s: float = 0.0, bytes_per_s: float = 1e9, loss: float = 0.0) -> Iterator[Link]:
    """A line to this port."""
    link = Link(target, delay_s=delay_s, bytes_per_s=bytes_per_s, loss=loss)
    try:
        yield link
    finally:
        link.close()
