"""`fedlearn join`: the asyncio shell around a worker, which comes back when the line breaks."""

import asyncio
import random
import signal
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, final

from es_core import usable_processors
from fedlearn.app.progress import Progress
from fedlearn.app.terminal import Terminal
from fedlearn.app.volunteer import Volunteer
from fedlearn.coordination.effects import ClientEffect, Compute, Leave, Notice, Reply
from fedlearn.coordination.worker import Worker
from fedlearn.net.tcp import Channel
from fedlearn.wire.connection import Connection
from fedlearn.wire.errors import LocalProtocolError, RemoteProtocolError
from fedlearn.wire.messages import Message

FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0
CONNECT_S = 15.0

MAX_QUEUED_BYTES = 256 * 1024 * 1024
"""Of Results that the server does not take."""


@final
class Conversation:
    """One connection to a server, from Hello to the end; then its worker and volunteer are done with."""

    def __init__(self, *, name: str, threads: int, terminal: Terminal) -> None:
        self._terminal = terminal
        self._progress = Progress()
        self._worker = Worker(name=name, threads=threads)
        self._volunteer = Volunteer(threads)
        self._compute = ThreadPoolExecutor(max_workers=1)
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
        return f"this machine took {self.n_steps} steps{digest}"

    async def run(self, host: str, port: int) -> Leave:
        """Connects and works; gives why it ended and whether to come back. Raises OSError if nobody answers."""
        reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port), CONNECT_S)
        channel = Channel(Connection("client", now=time.monotonic()), reader, writer, max_queued_bytes=MAX_QUEUED_BYTES)
        self._channel = channel
        self._perform(self._worker.start())
        running = asyncio.create_task(channel.run(self._receive))
        try:
            either: list[asyncio.Future[Any]] = [running, self._ended]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not self._ended.done() and not channel.connection.has_parted:
                return Leave(running.result(), is_welcome_back=True, is_refusal=False)
            leave = await self._ended  # after a Farewell the worker still takes the steps it was sent
            await asyncio.wait([running], timeout=1.0)  # a Goodbye may still be on its way out
            return leave
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            # The trials under way end by themselves within a slice; their result is not wanted.
            self._compute.shutdown(wait=False, cancel_futures=True)

    def stop(self, reason: str) -> None:
        """Says Goodbye."""
        self._perform(self._worker.stop(reason))

    def _receive(self, message: Message) -> None:
        self._perform(self._worker.received(message, time.monotonic()))

    def _perform(self, effects: Iterable[ClientEffect]) -> None:
        for effect in effects:
            match effect:
                case Reply(message):
                    self._send(message)
                case Notice(text):
                    self._terminal.say(text)
                case Leave():
                    if not self._ended.done():
                        self._ended.set_result(effect)
                case compute:
                    self._computing = asyncio.create_task(self._run(compute))

    def _send(self, message: Message) -> None:
        if self._channel is None:
            return
        try:
            self._channel.send(message)
        except LocalProtocolError:
            if not self._channel.connection.has_parted:
                raise

    async def _run(self, compute: Compute) -> None:
        try:
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(self._compute, self._volunteer.perform, compute)
            if not self._ended.done():
                now = time.monotonic()
                self._perform(self._worker.computed(result, now))
                if line := self._progress.performed(compute, n_steps=self.n_steps, now=now):
                    self._terminal.say(line)
        except (ValueError, RemoteProtocolError) as error:
            if not self._ended.done():
                self._ended.set_result(Leave(str(error), is_welcome_back=False, is_refusal=True))
        except Exception as error:
            if not self._ended.done():
                self._ended.set_exception(error)


async def _stay(host: str, port: int, *, name: str, threads: int, once: bool) -> int:
    """Converses again and again until there is a reason not to; gives the exit code."""
    terminal = Terminal()
    stopped = asyncio.Event()
    current: Conversation | None = None

    def interrupt() -> None:
        stopped.set()
        if current is not None:
            current.stop("the volunteer left")

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, interrupt)
    retry_s = FIRST_RETRY_S
    while True:
        has_answer = True
        current = Conversation(name=name, threads=threads, terminal=terminal)
        try:
            terminal.say(f"connecting to {host}:{port}")
            leave = await current.run(host, port)
        except (OSError, TimeoutError) as error:
            has_answer = False
            leave = Leave(f"no server answers: {error}", is_welcome_back=True, is_refusal=False)
        if current.n_steps:
            retry_s = FIRST_RETRY_S
        summary = f"{leave.reason}; {current.summary}"
        current = None
        if stopped.is_set():
            terminal.say(summary)
            return 0
        if once or not leave.is_welcome_back:
            terminal.say(f"refused: {leave.reason}" if leave.is_refusal else summary)
            return 1 if leave.is_refusal or not has_answer else 0
        # Jitter keeps a thousand volunteers from coming back in the same second.
        wait_s = retry_s * random.uniform(0.5, 1.5)
        terminal.say(f"{leave.reason}; trying again in {wait_s:.0f} s")
        try:
            await asyncio.wait_for(stopped.wait(), wait_s)
            return 0
        except TimeoutError:
            retry_s = min(2 * retry_s, LONGEST_RETRY_S)


def join(host: str, port: int, *, name: str, threads: int, once: bool) -> int:
    """Volunteers for the run of a server until it ends or Ctrl-C; gives the exit code. 0 threads: all processors."""
    n_threads = threads or usable_processors()
    return asyncio.run(_stay(host, port, name=name, threads=n_threads, once=once))
