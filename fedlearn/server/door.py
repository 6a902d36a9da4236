"""Who is let in: as many as there are files for, and nobody whose address flooded."""

import asyncio
from contextlib import suppress
from typing import final

from fedlearn.net.refusals import Refusals
from fedlearn.net.stream import Stream
from fedlearn.system.processes import open_files
from fedlearn.wire.connection import Connection

MAX_CONNECTIONS = 10_000

RESERVED_FILES = 256
"""Open files that no connection may take: the run's own, and those that the system accepts before anybody is asked."""

MAX_TURNED_AWAY = 32
"""At once; whoever comes on top hears no reason."""

PARTING_S = 2.0
"""For who is turned away to close: closing first could discard the reason on its way."""

_MAX_IGNORED_BYTES = 64 * 1024


@final
class Door:
    """Counts who is inside, and remembers who must stay out."""

    def __init__(self) -> None:
        self.refusals = Refusals()
        self.max_connections = max(1, min(MAX_CONNECTIONS, open_files() - RESERVED_FILES))
        self._n_turned_away = 0

    def objection(self, address: str, *, n_inside: int, now: float) -> str:
        """Why a connection is not taken; empty where it is."""
        if n_inside >= self.max_connections:
            return f"the server is full: it takes {self.max_connections} connections; come back later"
        if left_s := self.refusals.seconds_left(address, now):
            return f"a peer at this address sent far too much; come back in {left_s:.0f} s"
        return ""

    async def turn_away(self, stream: Stream, objection: str, *, now: float) -> None:
        """Says why, and gives the peer a moment to hear it."""
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
