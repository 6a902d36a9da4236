"""A line between a volunteer and its server that is as bad as a test wants it: late, slow, or cut."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

PIECE_BYTES = 4096


@final
class Link:
    """Forwards TCP connections; what goes in comes out `delay_s` later, and at most `bytes_per_s` each way."""

    def __init__(self, target: int, *, delay_s: float, bytes_per_s: float) -> None:
        self.port = 0
        self._target, self._delay_s, self._bytes_per_s = target, delay_s, bytes_per_s
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._is_open = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._is_open.wait(10.0)

    def close(self) -> None:
        """Cuts whatever goes through."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        if self._server is not None:
            self._server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.01))
        self._loop.close()

    def _run(self) -> None:
        self._loop.create_task(self._listen())
        self._loop.run_forever()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self._is_open.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
        ways = [self._forward(reader, there_writer), self._forward(there_reader, writer)]
        try:
            await asyncio.wait([asyncio.create_task(way) for way in ways], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in (writer, there_writer):
                end.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One way. The next piece may be under way while the one before is: a line delays, it does not wait."""
        loop, free_at = asyncio.get_running_loop(), 0.0
        while data := await reader.read(PIECE_BYTES):
            free_at = max(free_at, loop.time()) + len(data) / self._bytes_per_s
            loop.call_at(free_at + self._delay_s, writer.write, data)
            if (ahead_s := free_at - loop.time()) > self._delay_s:
                await asyncio.sleep(ahead_s - self._delay_s)


@contextmanager
def link_to(target: int, *, delay_s: float = 0.0, bytes_per_s: float = 1e9) -> Iterator[int]:
    """The port of a line to this one."""
    link = Link(target, delay_s=delay_s, bytes_per_s=bytes_per_s)
    try:
        yield link.port
    finally:
        link.close()
