"""`fedlearn relay`: a volunteer to the server above and a server to volunteers below, for as long as the run lasts."""

import asyncio
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import final

from fedlearn.client.failures import in_short
from fedlearn.client.lending.budget import MemoryBudget, why_too_many
from fedlearn.client.line import ServerLine
from fedlearn.client.performer import Computed
from fedlearn.client.volunteer import VolunteerReplica
from fedlearn.coordination.coordinator import Coordinator
from fedlearn.coordination.effects import Leave, ServerEffect
from fedlearn.coordination.relay.relay import Relay
from fedlearn.coordination.relay.upstream_steps import UpstreamSteps
from fedlearn.coordination.work.worker import Worker
from fedlearn.net.route import Route
from fedlearn.net.silence import why_silent
from fedlearn.relay.keeper import Blocks, RelayKeeper, RelaySettings
from fedlearn.relay.performer import RelayPerformer
from fedlearn.server.listening import listen
from fedlearn.server.security import ServerSecurity
from fedlearn.server.server import Server
from fedlearn.system.own_frames import own_lines
from fedlearn.terminal import Terminal
from fedlearn.wire.limits import DEFAULT_MAX_SNAPSHOT_BYTES
from fedlearn.wire.messages import DataBlock, Message, Welcome
from fedlearn.wire.proof import Credentials

FIRST_RETRY_S = 0.5
LONGEST_RETRY_S = 10.0

PATIENCE_S = 120.0
"""Seconds for which volunteers wait while no server above answers."""


@final
class Nobody:
    """The local volunteers of a relay, of which there are none."""

    n_started = 0
    server = ""

    def problems(self) -> list[str]:
        return []

    def stop(self) -> None:
        pass


@final
class RelayProcess:
    """The shell of a relay; one thread computes for both sides, since both use the same replica."""

    def __init__(
        self,
        volunteer: VolunteerReplica,
        credentials: Credentials,
        security: ServerSecurity,
        settings: RelaySettings,
        *,
        name: str,
        threads: int,
        terminal: Terminal,
        budget: MemoryBudget | None = None,
    ) -> None:
        """`budget` is the volunteer's as well."""
        self._budget = budget or MemoryBudget()
        self._volunteer, self._credentials = volunteer, credentials
        self._security, self._settings = security, settings
        self._name, self._threads = name, threads
        self._terminal = terminal
        self._route = Route(settings.above)
        self._compute = ThreadPoolExecutor(max_workers=1)
        self._blocks = Blocks()
        self._port = security.settings.port
        self._worker: Worker | None = None
        self._above: ServerLine | None = None
        self._server: Server | None = None
        self._serving: asyncio.Task[str] | None = None
        self._is_turning = False
        self._computing: set[asyncio.Task[None]] = set()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._relay = Relay(self._serve)
        self._performer = RelayPerformer(self._relay, self._volunteer, self)
        self._server = self._serving = None

    async def run(self) -> int:
        """Serves until there is a reason to stop; gives the exit code.

        Raises:
            ConfigError: it can't listen where its settings say.
        """
        listen(self._security.settings.host, self._port).close()  # told before the server above is asked for anything
        try:
            return await self._stay()
        finally:
            if self._server is not None:
                self._server.stop("the relay was stopped")
            if self._serving is not None:
                await asyncio.gather(self._serving, return_exceptions=True)
            self._compute.shutdown(wait=False, cancel_futures=True)

    async def _stay(self) -> int:
        retry_s, alone_since = FIRST_RETRY_S, time.monotonic()
        while True:
            self._worker = Worker(
                name=self._name, threads=self._threads, credentials=self._credentials, run=self._route.address.run
            )
            leave, reason = await self._converse()
            if reason:
                self.say(reason)
                return 0
            if leave.is_refusal and not self._worker.n_steps and self._route.failed():
                self._terminal.warn(f"{leave.reason}; trying the next address")
                continue
            if not leave.is_welcome_back:
                return await self._part(leave)
            if self._worker.n_steps:
                retry_s, alone_since = FIRST_RETRY_S, time.monotonic()
                self._route.worked()
            elif self._route.failed():
                continue
            if self._server is not None and time.monotonic() > alone_since + PATIENCE_S:
                await self._give_up(leave.reason)
            wait_s = retry_s * random.uniform(0.5, 1.5)
            self._terminal.warn(f"{leave.reason}; trying again in {wait_s:.1f} s")
            if reason := await self._wait(wait_s):
                self.say(reason)
                return 0
            retry_s = min(2 * retry_s, LONGEST_RETRY_S)

    async def _converse(self) -> tuple[Leave, str]:
        """Holds the conversation with the servers above; gives the reason of its end, and the reason why all has ended,
        if it has."""
        max_snapshot_bytes = min(self._budget.max_snapshot_bytes, DEFAULT_MAX_SNAPSHOT_BYTES)
        self._above = above = ServerLine(self._route.address, max_snapshot_bytes=max_snapshot_bytes)
        self.say(f"connecting to {self._route.address}")
        conversing = asyncio.create_task(above.converse(self._begin, self._receive))
        leave = Leave("", is_welcome_back=False, is_refusal=False)
        try:
            while not conversing.done():
                # Serving below may begin and end while this goes on.
                serving = [self._serving] if self._serving is not None else []
                await asyncio.wait([conversing, *serving], timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
                if self._serving is not None and self._serving.done():
                    if conversing.done():
                        break
                    self._part_above("the relay was stopped")
                    await asyncio.wait([conversing], timeout=1.0)
                    return leave, self._serving.result()
            leave = conversing.result()
        except OSError as error:
            why = why_silent(error, self._route.address.place)
            leave = Leave(f"no server answers: {why}", is_welcome_back=True, is_refusal=False)
        finally:
            conversing.cancel()
            await asyncio.gather(conversing, return_exceptions=True)
            self._above = None
            self._relay.lost()
        return leave, ""

    async def _part(self, leave: Leave) -> int:
        """Tells the volunteers below that the server above has ended this relay's work."""
        self._terminal.end(f"refused: {leave.reason}" if leave.is_refusal else leave.reason)
        if self._server is not None and self._serving is not None:
            if leave.is_refusal:
                self._server.stop(leave.reason)
            await self._serving  # the end of the run is noticed at the next tick
        return 1 if leave.is_refusal else 0

    async def _give_up(self, reason: str) -> None:
        """Ends the run below, so that volunteers look for another server, as none above has answered for long."""
        assert self._server is not None
        assert self._serving is not None
        self._server.stop(f"the server above can't be reached: {reason}")
        await self._serving
        self._begin_anew()

    async def _wait(self, seconds: float) -> str:
        """Waits; gives the reason if everything has ended meanwhile."""
        if self._serving is None:
            await asyncio.sleep(seconds)
            return ""
        done, _ = await asyncio.wait([self._serving], timeout=seconds)
        return self._serving.result() if done else ""

    def _part_above(self, reason: str) -> None:
        assert self._worker is not None
        self._performer.perform(self._worker.stop(reason))

    # ---- both sides

    async def _begin(self, nonce: bytes, binding: bytes) -> None:
        assert self._worker is not None
        # It waits for what the last conversation has left to compute.
        held = await asyncio.get_running_loop().run_in_executor(self._compute, lambda: self._volunteer.held)
        self._performer.perform(self._relay.start(self._worker, nonce=nonce, binding=binding, held=held))

    def _receive(self, message: Message) -> None:
        if isinstance(message, DataBlock):
            self._blocks.keep(message)
        self._performer.perform(self._relay.received(message, self.now()))
        assert self._worker is not None
        if (n_bytes := self._worker.bytes_waiting) > (most := self._budget.max_waiting_bytes):
            reason = why_too_many(n_bytes, most)
            self._performer.perform(self._worker.fail(reason, is_welcome_back=True))

    def _serve(self, welcome: Welcome, step: int, digest: bytes) -> tuple[Coordinator, UpstreamSteps]:
        keeper = RelayKeeper(self._volunteer, self._blocks, welcome, self._settings, step=step, digest=digest)
        listening = listen(self._security.settings.host, self._port)
        self._port = listening.getsockname()[1]
        self._server = server = Server(keeper, [self._terminal], self._security, compute=self._compute, then=self._turn)
        self._serving = asyncio.create_task(server.run(listening, lambda _: Nobody()))
        return server.coordinator, keeper.steps

    def _turn(self) -> None:
        if self._is_turning:
            return
        self._is_turning = True
        try:
            self._performer.turn()
        finally:
            self._is_turning = False

    # ---- what the performer asks of its shell

    def now(self) -> float:
        return time.monotonic()

    def send_up(self, message: Message) -> None:
        if self._above is not None:
            self._above.send(message)

    def below(self, effects: list[ServerEffect]) -> None:
        if self._server is not None:
            self._server.perform(effects)

    def compute(self, task: Callable[[], Computed], then: Callable[[Computed], None]) -> None:
        computing = asyncio.create_task(self._do(task, then))
        self._computing.add(computing)
        computing.add_done_callback(self._finish)

    def say(self, text: str) -> None:
        self._terminal.say(text)

    def left(self, leave: Leave) -> None:
        if self._above is not None:
            self._above.left(leave)

    def _finish(self, computing: "asyncio.Task[None]") -> None:
        self._computing.discard(computing)
        if not computing.cancelled() and (error := computing.exception()) is not None:
            reason = in_short(error)
            if self._above is None:
                self._terminal.warn(reason)
            self.left(Leave(reason, is_welcome_back=False, is_refusal=True))

    async def _do(self, task: Callable[[], Computed], then: Callable[[Computed], None]) -> None:
        try:
            result = await asyncio.get_running_loop().run_in_executor(self._compute, task)
        except Exception as error:
            for line in own_lines(error):
                self._terminal.warn(line)
            if self._worker is not None:
                self._performer.perform(self._worker.fail(in_short(error)))
            return
        then(result)
