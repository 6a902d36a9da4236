"""One connection to a server, from Hello to the end: the asyncio shell around a worker."""

import asyncio
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, final

from fedlearn.client.budget import Budget, in_words
from fedlearn.client.duty import Duty
from fedlearn.client.failures import in_short, own_lines
from fedlearn.client.performer import Computed, Performer
from fedlearn.client.volunteer import Volunteer
from fedlearn.coordination.effects import Leave
from fedlearn.coordination.worker import Worker
from fedlearn.net.address import Address
from fedlearn.net.channel import Channel
from fedlearn.net.dialing import dial
from fedlearn.net.tcp import TcpStream
from fedlearn.net.tls import UntrustedServerError
from fedlearn.terminal import Terminal
from fedlearn.wire.connection import Connection
from fedlearn.wire.errors import LocalProtocolError
from fedlearn.wire.limits import DEFAULT_MAX_SNAPSHOT_BYTES
from fedlearn.wire.messages import Message
from fedlearn.wire.proof import NONCE_BYTES, Credentials
from fedlearn.wire.states import State

CONNECT_S = 15.0

MAX_QUEUED_BYTES = 256 * 1024 * 1024
"""Of Results that the server does not take."""

SLICE_LIMIT_S = 0.4
"""For trials under way when a person leaves; then their Result is not waited for."""

LAST_WORD_S = 0.4
"""For a Goodbye to get out."""

COMPUTING = "fedlearn-computing"
"""Name of the threads on which computations run."""


@final
class Conversation:
    """Its worker is done with when it ends; what the volunteer holds is good for the next one."""

    def __init__(
        self,
        address: Address,
        credentials: Credentials,
        *,
        name: str,
        threads: int,
        volunteer: Volunteer,
        terminal: Terminal,
        budget: Budget | None = None,
        duty: Duty | None = None,
    ) -> None:
        self._address = address
        self._terminal = terminal
        self._budget = budget or Budget()
        self._duty = duty
        self._worker = Worker(name=name, threads=threads, credentials=credentials, run=address.run)
        self._volunteer = volunteer
        self._performer = Performer(self._worker, self._volunteer, self)
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=COMPUTING)
        self._channel: Channel | None = None
        self._ended: asyncio.Future[Leave] = asyncio.get_running_loop().create_future()
        self._computing: asyncio.Task[None] | None = None

    @property
    def n_steps(self) -> int:
        """Steps that this machine took part in or followed."""
        return self._worker.n_steps

    @property
    def summary(self) -> str:
        """What this machine did, for the person in front of it."""
        replica = self._volunteer.replica
        digest = "" if replica is None else f", to step {replica.step} with digest {replica.digest.hex()}"
        credited = self._performer.credited
        return f"this machine took {self.n_steps} steps{digest}" + (f"; {credited}" if credited else "")

    async def run(self) -> Leave:
        """Connects and works; gives why it ended and whether to come back. Raises OSError if nobody answers."""
        try:
            reader, writer, binding = await asyncio.wait_for(dial(self._address), CONNECT_S)
        except (UntrustedServerError, ValueError) as error:
            return Leave(str(error), is_welcome_back=False, is_refusal=True)
        max_snapshot_bytes = min(self._budget.max_snapshot_bytes, DEFAULT_MAX_SNAPSHOT_BYTES)
        connection = Connection("client", now=self.now(), max_snapshot_bytes=max_snapshot_bytes)
        channel = Channel(connection, TcpStream(reader, writer), max_queued_bytes=MAX_QUEUED_BYTES)
        self._channel = channel
        held = await asyncio.to_thread(lambda: self._volunteer.held)
        self._performer.perform(self._worker.start(nonce=secrets.token_bytes(NONCE_BYTES), binding=binding, held=held))
        running = asyncio.create_task(channel.run(self._receive))
        try:
            either: list[asyncio.Future[Any]] = [running, self._ended]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not self._ended.done() and not channel.connection.has_parted:
                return Leave(self._explained(running.result()), is_welcome_back=True, is_refusal=False)
            leave = await self._ended  # after a Farewell the worker still takes the steps it was sent
            await asyncio.wait([running], timeout=LAST_WORD_S)  # a Goodbye may still be on its way out
            return leave
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            # The trials under way end by themselves within a slice; their result is not wanted.
            self._executor.shutdown(wait=False, cancel_futures=True)

    def stop(self, reason: str) -> None:
        """Hands in the trials under way, if they end soon, and says Goodbye."""
        self._performer.perform(self._worker.finish(reason, self.now()))
        asyncio.get_running_loop().call_later(SLICE_LIMIT_S, lambda: self._performer.perform(self._worker.stop(reason)))

    # ---- what the performer asks of its shell

    def now(self) -> float:
        return time.monotonic()

    def send(self, message: Message) -> None:
        if self._channel is None:
            return
        try:
            self._channel.send(message)
        except LocalProtocolError:
            if not self._channel.connection.has_parted:
                raise

    def compute(self, task: Callable[[], Computed], then: Callable[[Computed], None]) -> None:
        self._computing = asyncio.create_task(self._compute(task, then))

    def say(self, text: str) -> None:
        self._terminal.say(text)

    def left(self, leave: Leave) -> None:
        if not self._ended.done():
            self._ended.set_result(leave)

    def _receive(self, message: Message) -> None:
        self._performer.perform(self._worker.received(message, self.now()))
        if (n_bytes := self._worker.bytes_waiting) > self._budget.max_waiting_bytes:
            reason = f"memory: expected orders as fast as this machine takes them, {in_words(n_bytes)} are waiting"
            self._performer.perform(self._worker.fail(reason, is_welcome_back=True))

    def _explained(self, reason: str) -> str:
        """The reason why the line ended; more of it where it never was one."""
        assert self._channel is not None
        if self._address.has_tls or self._channel.connection.state is not State.GREETED:
            return reason
        return f"{reason}; if the server wants encryption, join with the line that it prints"

    async def _compute(self, task: Callable[[], Computed], then: Callable[[Computed], None]) -> None:
        try:
            result = await asyncio.get_running_loop().run_in_executor(self._executor, _without_exit(task))
        except Exception as error:
            for line in own_lines(error):
                self.say(line)
            self._performer.perform(self._worker.fail(in_short(error)))
            return
        if self._ended.done():
            return
        self._rest()
        then(result)

    def _rest(self) -> None:
        """Lets trials wait for as long as this machine's owner wants."""
        if self._duty is None:
            return
        rest_s = self._duty.rest_s(time.process_time(), self.now())
        if rest_s > 0.0:
            self._worker.rest(self.now() + rest_s)
            asyncio.get_running_loop().call_later(rest_s, self._wake)

    def _wake(self) -> None:
        self._performer.perform(self._worker.wake(self.now()))


def computes() -> bool:
    """Whether computations go on in this process, of conversations that are over or not."""
    return any(thread.name.startswith(COMPUTING) for thread in threading.enumerate())


def _without_exit(task: Callable[[], Computed]) -> Callable[[], Computed]:
    """`sys.exit` in a user's code ends its computation, like any other error, and not asyncio's loop."""

    def perform() -> Computed:
        try:
            return task()
        except SystemExit as error:
            raise RuntimeError(f"the code called sys.exit({error.code})").with_traceback(error.__traceback__) from error

    return perform
