"""A line between a volunteer and its server that is cut and mended."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

from tests.patience import LIMIT_S

PIECE_BYTES = 4096


@final
class Link:
    """Forwards TCP connections."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._ends: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self._target = target
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
        try:
            if self._is_cut:
                raise ConnectionError
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target, limit=PIECE_BYTES)
        except (OSError, asyncio.CancelledError):  # nobody is there any more, or the test is over
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
        """One way."""
        while data := await reader.read(PIECE_BYTES):
            writer.write(data)
            await writer.drain()


@contextmanager
def link_to(target: int) -> Iterator[Link]:
    """A line to this port."""
    link = Link(target)
    try:
        yield link
    finally:
        link.close()
