"""One connection to a server, from Hello to its end: the asyncio shell around a worker."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import final

from fedlearn.client.failures import in_short
from fedlearn.client.lending.budget import MemoryBudget, why_too_many
from fedlearn.client.lending.throttle import CpuThrottle
from fedlearn.client.line import ServerLine
from fedlearn.client.neighbours import NeighbourLines
from fedlearn.client.performer import Computed, VolunteerPerformer
from fedlearn.client.showing import Showing
from fedlearn.client.volunteer import VolunteerReplica
from fedlearn.coordination.effects import Leave
from fedlearn.coordination.work.work import Heard, LineEvent, Unlinked
from fedlearn.coordination.work.worker import Worker
from fedlearn.net.address import Address
from fedlearn.net.direct import LineAddress
from fedlearn.system.own_frames import own_lines
from fedlearn.terminal import Terminal
from fedlearn.terminal.figures import format_bytes
from fedlearn.wire.limits import DEFAULT_MAX_SNAPSHOT_BYTES
from fedlearn.wire.messages import Activations, Message, Neighbours
from fedlearn.wire.proof import Credentials

SLICE_LIMIT_S = 0.4
"""Seconds for which trials under way may go on when a person leaves; after that their Result is not waited for."""

COMPUTING = "fedlearn-computing"
"""The beginning of the names of the threads that compute."""


@final
class Conversation:
    """One conversation with a worker of its own; the volunteer keeps what it holds for the next one."""

    def __init__(
        self,
        address: Address,
        credentials: Credentials,
        *,
        name: str,
        threads: int,
        volunteer: VolunteerReplica,
        terminal: Terminal,
        budget: MemoryBudget | None = None,
        throttle: CpuThrottle | None = None,
        direct: LineAddress | None = None,
    ) -> None:
        """`direct` is the address at which this machine listens for neighbours in a crew; None: it neither listens nor
        calls."""
        self._terminal = terminal
        self._budget = budget or MemoryBudget()
        self._throttle = throttle
        self._worker = Worker(
            name=name,
            threads=threads,
            credentials=credentials,
            run=address.run,
            memory_bytes=self._budget.lent_bytes,
        )
        self._volunteer = volunteer
        has_block = terminal.screen.mode == "live"
        self._performer = VolunteerPerformer(self._worker, self._volunteer, self, has_block=has_block)
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=COMPUTING)
        max_snapshot_bytes = min(self._budget.max_snapshot_bytes, DEFAULT_MAX_SNAPSHOT_BYTES)
        self._line = ServerLine(address, max_snapshot_bytes=max_snapshot_bytes)
        self._lines = (
            NeighbourLines(credentials.identity, direct, self._tell, name=name, has_tls=address.has_tls)
            if direct is not None
            else None
        )
        self._computing: asyncio.Task[None] | None = None

    @property
    def n_steps(self) -> int:
        """Steps that this machine has taken, with trials of its own or without."""
        return self._worker.n_steps

    @property
    def summary(self) -> str:
        """What this machine did, in a sentence for the person in front of it."""
        replica = self._volunteer.replica
        digest = "" if replica is None else f", to step {replica.step} with digest {replica.digest.hex()}"
        credited = self._performer.credited
        return f"this machine took {self.n_steps} steps{digest}" + (f"; {credited}" if credited else "")

    async def run(self) -> Leave:
        """Connects and works; gives the reason of the end and whether to come back.

        Raises:
            OSError: nobody answers.
        """
        try:
            showing = asyncio.create_task(Showing(self._terminal, self._performer.block).show(self._line))
            try:
                return await self._line.converse(self._begin, self._receive)
            finally:
                showing.cancel()
                await asyncio.gather(showing, return_exceptions=True)
        finally:
            if self._lines is not None:
                self._lines.close()
            # Trials under way end by themselves within a slice; their result is not wanted.
            self._executor.shutdown(wait=False, cancel_futures=True)

    def stop(self, reason: str) -> None:
        """Sends the results of the trials under way, if they end soon, and says Goodbye."""
        self._performer.perform(self._worker.finish(reason, self.now()))
        asyncio.get_running_loop().call_later(SLICE_LIMIT_S, lambda: self._performer.perform(self._worker.stop(reason)))

    # ---- what the performer asks of its shell

    def now(self) -> float:
        return time.monotonic()

    def send(self, message: Message) -> None:
        self._line.send(message)

    def compute(self, task: Callable[[], Computed], then: Callable[[Computed], None]) -> None:
        self._computing = asyncio.create_task(self._compute(task, then))

    def say(self, text: str) -> None:
        self._terminal.say(text)

    def left(self, leave: Leave) -> None:
        self._line.left(leave)

    def introduce(self, neighbours: Neighbours) -> None:
        if self._lines is not None:
            self._lines.link(neighbours)

    def forward(self, activations: Activations) -> None:
        if self._lines is not None:
            self._lines.forward(activations)

    # ---- what the lines to neighbours tell

    def _tell(self, event: LineEvent) -> None:
        self._performer.perform(self._worker.neighbour(event, self.now()))
        n_bytes = self._worker.activations_waiting_bytes
        if isinstance(event, Heard) and n_bytes > self._budget.max_activations_bytes:
            self._tell(Unlinked(f"memory: {format_bytes(n_bytes)} are waiting", is_next=False))

    async def _begin(self, nonce: bytes, binding: bytes) -> None:
        held = await asyncio.to_thread(lambda: self._volunteer.held)
        port = await self._lines.listen() if self._lines is not None else 0
        self._performer.perform(self._worker.start(nonce=nonce, binding=binding, held=held, listens_at=port))

    def _receive(self, message: Message) -> None:
        self._performer.perform(self._worker.received(message, self.now()))
        n_bytes, n_activations = self._worker.bytes_waiting, self._worker.activations_waiting_bytes
        most, most_activations = self._budget.max_waiting_bytes, self._budget.max_activations_bytes
        if n_bytes > most or n_activations > most_activations:
            reason = why_too_many(n_bytes + n_activations, most if n_bytes > most else most_activations)
            self._performer.perform(self._worker.fail(reason, is_welcome_back=True))

    async def _compute(self, task: Callable[[], Computed], then: Callable[[Computed], None]) -> None:
        try:
            result = await asyncio.get_running_loop().run_in_executor(self._executor, _without_exit(task))
        except Exception as error:
            for line in own_lines(error):
                self._terminal.warn(line)
            self._performer.perform(self._worker.fail(in_short(error)))
            return
        if self._line.is_over:
            return
        self._rest()
        then(result)

    def _rest(self) -> None:
        """Pauses trials for as long as the owner of this machine wants."""
        if self._throttle is None:
            return
        rest_s = self._throttle.rest_s(time.process_time(), self.now())
        if rest_s > 0.0:
            self._worker.rest(self.now() + rest_s)
            asyncio.get_running_loop().call_later(rest_s, self._wake)

    def _wake(self) -> None:
        self._performer.perform(self._worker.wake(self.now()))


def computes() -> bool:
    """Whether any computation goes on in this process, even one of a conversation that is over."""
    return any(thread.name.startswith(COMPUTING) for thread in threading.enumerate())


def _without_exit(task: Callable[[], Computed]) -> Callable[[], Computed]:
    """Turns `sys.exit` in a user's code into an error, which ends the computation and not the event loop."""

    def perform() -> Computed:
        try:
            return task()
        except SystemExit as error:
            raise RuntimeError(f"the code called sys.exit({error.code})").with_traceback(error.__traceback__) from error

    return perform
