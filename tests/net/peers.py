"""The two ends of a real socket on loopback: a channel, and a peer that reads and writes only what a test says."""

import asyncio
import socket
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal, final

from fedlearn.net.channel import Channel
from fedlearn.net.tcp import TcpStream
from fedlearn.wire.connection import Connection
from fedlearn.wire.messages import Message
from fedlearn.wire.states import State
from tests.patience import LIMIT_S

SOON_S = LIMIT_S


@final
class Peer:
    """The other side: a bare socket, and the protocol in the hands of the test."""

    def __init__(self, role: Literal["client", "server"], raw: socket.socket) -> None:
        self.connection = Connection(role, now=0.0)
        self.socket = raw
        self._heard: deque[Message] = deque()

    async def write(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def say(self, message: Message) -> None:
        self.connection.send(message)
        await self.write(self.connection.data_to_send(2**30))

    async def hear(self) -> bytes:
        """The next bytes; empty where the channel has closed."""
        loop = asyncio.get_running_loop()
        return await asyncio.wait_for(loop.sock_recv(self.socket, 2**20), SOON_S)

    async def next_message(self) -> Message:
        while not self._heard:
            data = await self.hear()
            assert data, "expected a message, the channel was closed"
            self._heard += self.connection.receive_data(data, 0.0)
        return self._heard.popleft()


@asynccontextmanager
async def joined(
    role: Literal["client", "server"] = "server", *, max_queued_bytes: int = 2**30, now: float | None = None
) -> AsyncIterator[tuple[Channel, asyncio.StreamWriter, Peer]]:
    """A channel of that role with its writer, and its peer."""
    accepted: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = (
        asyncio.get_running_loop().create_future()
    )
    listener = await asyncio.start_server(lambda *ends: accepted.set_result(ends), "127.0.0.1", 0)
    raw = socket.socket()
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, listener.sockets[0].getsockname())
    reader, writer = await accepted
    connection = Connection(role, now=time.monotonic() if now is None else now)
    channel = Channel(connection, TcpStream(reader, writer), max_queued_bytes=max_queued_bytes)
    try:
        yield channel, writer, Peer("client" if role == "server" else "server", raw)
    finally:
        raw.close()
        writer.close()
        listener.close()
        await asyncio.wait_for(closed(writer), SOON_S)


def admit(channel: Channel, peer: Peer) -> None:
    """As if the peer, which said Hello, had proven who it is."""
    channel.connection.state = peer.connection.state = State.PROVEN


async def others_ended() -> None:
    """Waits for what a test left to be done at other ends."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=SOON_S)


async def closed(writer: asyncio.StreamWriter) -> None:
    try:
        await writer.wait_closed()
    except OSError:
        return
