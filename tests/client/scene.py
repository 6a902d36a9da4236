"""A server that answers as a test tells it, and a client's conversation with it."""

import asyncio
import io
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import final

from fedlearn.client.conversation import Conversation
from fedlearn.client.lending.budget import MemoryBudget
from fedlearn.client.volunteer import VolunteerReplica
from fedlearn.coordination.effects import Leave
from fedlearn.es.layout import Float32Array
from fedlearn.net.address import Address
from fedlearn.net.channel import Channel
from fedlearn.net.tcp import TcpStream
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.terminal import Terminal
from fedlearn.wire.connection import Connection
from fedlearn.wire.messages import Hello, Message
from tests.identities import ADA, CHALLENGE
from tests.patience import LIMIT_S
from tests.run_folders import fit_task


@final
class Held:
    """A task whose trials wait until they may end."""

    def __init__(self) -> None:
        self.has_begun, self.may_end = threading.Event(), threading.Event()
        self.task = fit_task(loss=self._loss)

    def _loss(self, _: dict[str, Float32Array]) -> float:
        self.has_begun.set()
        self.may_end.wait(LIMIT_S)
        return 1.0


@final
class Scene:
    """A server that answers as it is told, and a client's conversation with it."""

    def __init__(self, task: NamedTask | None = None, *, budget: MemoryBudget | None = None) -> None:
        self.screen = io.StringIO()
        self.heard: list[Message] = []
        self.answers: dict[type, Callable[[], list[Message]]] = {Hello: lambda: [CHALLENGE]}
        """What is said to a message of a type."""
        self.credentials = ADA
        self.meant = ""
        """The run that the volunteer wants to join; any if empty."""
        self.task = task
        self.budget = budget
        self._reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def converse(self) -> AsyncIterator["asyncio.Task[Leave]"]:
        """The conversation, which gives why it ended."""
        async with asyncio.timeout(LIMIT_S), await asyncio.start_server(self._serve, "127.0.0.1", 0) as listener:
            host, port = listener.sockets[0].getsockname()
            self.conversation = self.calling(Address(host, port, run=self.meant))
            conversing = asyncio.create_task(self.conversation.run())
            try:
                yield conversing
                await self._reason
            finally:
                conversing.cancel()
                await asyncio.gather(conversing, return_exceptions=True)

    def calling(self, address: Address) -> Conversation:
        terminal = Terminal(stream=self.screen)
        return Conversation(
            address,
            self.credentials,
            name="Ada",
            threads=2,
            volunteer=VolunteerReplica(2, task=self.task, budget=self.budget),
            terminal=terminal,
            budget=self.budget,
        )

    async def has_heard(self, kind: type) -> None:
        while not any(isinstance(message, kind) for message in self.heard):
            await asyncio.sleep(0)

    def say(self, *messages: Message) -> None:
        for message in messages:
            self._channel.send(message)

    def hang_up(self) -> None:
        self._writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._channel = Channel(Connection("server", now=0.0), TcpStream(reader, writer), max_queued_bytes=2**30)
        self._reason.set_result(await self._channel.run(self._receive))

    def _receive(self, message: Message) -> None:
        self.heard.append(message)
        self.say(*self.answers.get(type(message), list)())
