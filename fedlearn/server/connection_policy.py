"""Decides which connections are accepted: as many as there are open files for, and none from addresses that have
flooded."""

import asyncio
from contextlib import suppress
from typing import final

from fedlearn.net.refusals import Refusals
from fedlearn.net.stream import Stream
from fedlearn.system.processes import open_files
from fedlearn.wire.connection import Connection

MAX_CONNECTIONS = 10_000

RESERVED_FILES = 256
"""Open files that no connection may take: the run's own, and those that the system accepts before the server is
asked."""

MAX_TURNED_AWAY = 32
"""The most peers that are turned away at a time; further ones are not told the reason."""

PARTING_S = 2.0
"""Seconds for which a peer that is turned away may close the connection: closing first might discard the reason on its
way."""

_MAX_IGNORED_BYTES = 64 * 1024


@final
class ConnectionPolicy:
    """Decides about connections, and remembers which addresses are refused."""

    def __init__(self) -> None:
        self.refusals = Refusals()
        self.max_connections = max(1, min(MAX_CONNECTIONS, open_files() - RESERVED_FILES))
        self._n_turned_away = 0

    def objection(self, address: str, *, n_inside: int, now: float) -> str:
        """The reason why a connection is not accepted; empty where it is."""
        if n_inside >= self.max_connections:
            return f"the server is full: it takes {self.max_connections} connections; come back later"
        if left_s := self.refusals.seconds_left(address, now):
            return f"a peer at this address sent far too much; come back in {left_s:.0f} s"
        return ""

    async def turn_away(self, stream: Stream, objection: str, *, now: float) -> None:
        """Tells the peer the reason, and gives it a moment to read it."""
        if self._n_turned_away >= MAX_TURNED_AWAY:
            return
        self._n_turned_away += 1
        try:
            stream.write(Connection("server", now=now).last_word("try_again", objection))
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(PARTING_S):
                    n_ignored = 0
                    while n_ignored < _MAX_IGNORED_BYTES and (data := await stream.read(4096)):
                        n_ignored += len(data)
        finally:
            self._n_turned_away -= 1
