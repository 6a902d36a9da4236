"""A server at work in this process, over real sockets."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, final

from fedlearn.callback import Callback
from fedlearn.client.conversation import Conversation
from fedlearn.client.volunteer import VolunteerReplica
from fedlearn.coordination.effects import Leave
from fedlearn.runs.run import Run
from fedlearn.runs.status_file import StatusFile
from fedlearn.server.listening import listen
from fedlearn.server.security import open_security
from fedlearn.server.server import Server
from fedlearn.server.training.trainer import Trainer
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.terminal import Terminal
from fedlearn.wire.proof import Credentials
from tests.identities import ADA
from tests.patience import LIMIT_S


@final
class Local:
    """Stands in for the volunteers of a server's own machine."""

    n_started = 0
    server = ""

    def __init__(self) -> None:
        self.unsaid: list[str] = []
        self.is_stopped = False

    def problems(self) -> list[str]:
        said, self.unsaid = self.unsaid, []
        return said

    def stop(self) -> None:
        self.is_stopped = True


@final
class Scene:
    """A server of a run, at work in a task of its own while the scene is open."""

    def __init__(self, run: Run, task: NamedTask) -> None:
        self.run, self.task = run, task
        self.security = open_security(run.config.server, run.folder.path, {})
        self.trainer, _ = Trainer.open(run)
        self.screen, self.local = io.StringIO(), Local()
        self.port = 0
        self.page: asyncio.Future[str] | None = None
        self.callbacks: list[Callback] = []

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["asyncio.Task[str]"]:
        """The server's task, which gives why the run ended."""
        terminal = Terminal(stream=self.screen)
        status = StatusFile(self.run.folder.status, terminal.say)
        self.server = Server(self.trainer, [*self.callbacks, terminal, status], self.security, page=self.page)
        with listen("127.0.0.1", 0) as listening:
            self.port = listening.getsockname()[1]
            local: Any = self.local
            serving = asyncio.create_task(self.server.run(listening, lambda _: local))
            try:
                async with asyncio.timeout(LIMIT_S):
                    yield serving
            finally:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)

    def volunteer(
        self, name: str, credentials: Credentials = ADA, volunteer: VolunteerReplica | None = None
    ) -> Conversation:
        terminal = Terminal(stream=io.StringIO())
        address = self.security.local_address(self.port)
        volunteer = volunteer or VolunteerReplica(1, task=self.task)
        return Conversation(address, credentials, name=name, threads=1, volunteer=volunteer, terminal=terminal)

    async def converse(self, conversation: Conversation) -> Leave:
        return await conversation.run()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def said(self, text: str) -> None:
        """Until the server's terminal shows this."""
        while text not in self.screen.getvalue():
            await asyncio.sleep(0)


SceneOf = Callable[..., Scene]
