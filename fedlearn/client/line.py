"""The client's end of one conversation with a server: it moves bytes between a socket and a receiver of messages."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any, final

from fedlearn.coordination.effects import Leave
from fedlearn.net.address import Address
from fedlearn.net.channel import Channel
from fedlearn.net.dialing import dial
from fedlearn.net.tcp import TcpStream
from fedlearn.net.tls import UntrustedServerError
from fedlearn.wire.connection import Connection
from fedlearn.wire.errors import LocalProtocolError
from fedlearn.wire.messages import Message
from fedlearn.wire.proof import NONCE_BYTES
from fedlearn.wire.states import State

CONNECT_S = 15.0

MAX_QUEUED_BYTES = 256 * 1024 * 1024
"""Bytes of messages that may wait because the server does not take them."""

LAST_WORD_S = 0.4
"""Seconds within which a Goodbye must leave."""

Begin = Callable[[bytes, bytes], Awaitable[None]]
"""Callback that is called first, with a nonce and the binding of the server's certificate, and says Hello."""


@final
class ServerLine:
    """A line to a server, which ends when the connection does or when either side leaves."""

    def __init__(self, address: Address, *, max_snapshot_bytes: int) -> None:
        self._address = address
        self._max_snapshot_bytes = max_snapshot_bytes
        self._channel: Channel | None = None
        self._ended: asyncio.Future[Leave] = asyncio.get_running_loop().create_future()

    async def converse(self, begin: Begin, receive: Callable[[Message], None]) -> Leave:
        """Connects and moves messages; gives the reason of the end and whether to come back.

        Raises:
            OSError: nobody answers.
        """
        try:
            reader, writer, binding = await asyncio.wait_for(dial(self._address), CONNECT_S)
        except (UntrustedServerError, ValueError) as error:
            return Leave(str(error), is_welcome_back=False, is_refusal=True)
        connection = Connection("client", now=time.monotonic(), max_snapshot_bytes=self._max_snapshot_bytes)
        self._channel = channel = Channel(connection, TcpStream(reader, writer), max_queued_bytes=MAX_QUEUED_BYTES)
        await begin(secrets.token_bytes(NONCE_BYTES), binding)
        running = asyncio.create_task(channel.run(receive))
        try:
            either: list[asyncio.Future[Any]] = [running, self._ended]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not self._ended.done() and (channel.has_erred or not connection.has_parted):
                reason = self._explained(running.result(), connection)
                return Leave(reason, is_welcome_back=True, is_refusal=channel.has_erred)
            leave = await self._ended  # the steps that came before a Farewell are still taken
            await asyncio.wait([running], timeout=LAST_WORD_S)  # a Goodbye may still be on its way out
            return leave
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    @property
    def is_over(self) -> bool:
        """Whether either side has left."""
        return self._ended.done()

    @property
    def arriving(self) -> tuple[int, int] | None:
        """Bytes here, and at most in all, of the message that has begun to arrive; None where there is none."""
        return self._channel.connection.arriving if self._channel is not None else None

    def send(self, message: Message) -> None:
        """Queues a message, unless either side has parted."""
        if self._channel is None:
            return
        try:
            self._channel.send(message)
        except LocalProtocolError:
            if not self._channel.connection.has_parted:
                raise

    def left(self, leave: Leave) -> None:
        """Ends the conversation."""
        if not self._ended.done():
            self._ended.set_result(leave)

    def _explained(self, reason: str, connection: Connection) -> str:
        """Why the line ended; with a hint where the server said nothing at all."""
        if self._address.has_tls or connection.state is not State.GREETED:
            return reason
        return f"{reason}; if the server wants encryption, join with the line that it prints"
