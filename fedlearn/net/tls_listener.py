"""A listening socket with TLS that allows a bounded number of handshakes at a time.

`asyncio.start_server` has no bound, and each handshake holds a file descriptor.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import final

from fedlearn.net.tls import HANDSHAKE_S, SHUTDOWN_S

MAX_HANDSHAKES = 128
"""The most handshakes at a time; beyond, the oldest is given up: an honest one takes two round trips, so the longest
wait is suspect."""

RETRY_S = 0.1
"""Seconds to wait after the system refused a socket."""

Accepted = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@final
class TlsListener:
    """Calls `accepted` for each caller whose handshake succeeded, until it is closed; other callers are ignored."""

    def __init__(
        self,
        accepted: Accepted,
        listening: socket.socket,
        context: ssl.SSLContext,
        *,
        limit: int,
    ) -> None:
        listening.setblocking(False)
        self._accepted = accepted
        self._listening = listening
        self._context = context
        self._limit = limit
        self._shaking: dict[asyncio.Task[None], socket.socket | None] = {}
        """Handshakes, the oldest first; each with its socket until the task has begun, which then owns it."""
        self._accepting = asyncio.create_task(self._accept())
        # Not before: while the event loop waits for callers, no other socket may have this one's descriptor.
        self._accepting.add_done_callback(lambda _: listening.close())

    @property
    def n_handshakes(self) -> int:
        """Handshakes that are under way."""
        return len(self._shaking)

    def close(self) -> None:
        """Stops accepting callers; accepted connections stay."""
        self._accepting.cancel()
        for task in list(self._shaking):
            self._give_up(task)

    async def _accept(self) -> None:
        while True:
            try:
                sock, _ = await asyncio.get_running_loop().sock_accept(self._listening)
            except OSError:  # no file descriptor is left, or the caller is gone already
                await asyncio.sleep(RETRY_S)
                continue
            while len(self._shaking) >= MAX_HANDSHAKES:
                self._give_up(next(iter(self._shaking)))
            task = asyncio.create_task(self._shake_hands(sock))
            self._shaking[task] = sock
            task.add_done_callback(lambda done: self._shaking.pop(done, None))

    def _give_up(self, task: asyncio.Task[None]) -> None:
        sock = self._shaking.pop(task)
        task.cancel()
        if sock is not None:
            sock.close()

    async def _shake_hands(self, sock: socket.socket) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._shaking[task] = None
        reader = asyncio.StreamReader(limit=self._limit, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, self._accepted, loop=loop)
        try:
            await loop.connect_accepted_socket(
                lambda: protocol,
                sock,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except OSError:
            return  # no volunteer, or one that cannot be told anything
