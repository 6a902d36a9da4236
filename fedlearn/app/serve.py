"""`fedlearn serve`: the asyncio shell around the coordinator, with the local volunteers it starts."""

import asyncio
import errno
import signal
import socket
import time
from collections.abc import Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, final

from fedlearn.app.local_volunteers import LocalVolunteers
from fedlearn.app.sampler import Sampler
from fedlearn.app.terminal import Terminal
from fedlearn.app.trainer import Trainer
from fedlearn.config import ConfigError
from fedlearn.coordination.effects import (
    AppendToJournal,
    ApplyUpdate,
    EndRun,
    Notice,
    Part,
    Peer,
    SaveCheckpoint,
    Send,
    SendBlock,
    SendSnapshot,
    ServerEffect,
    StepReport,
)
from fedlearn.es.update import Update
from fedlearn.net.tcp import Channel
from fedlearn.wire.connection import Connection
from fedlearn.wire.errors import LocalProtocolError
from fedlearn.wire.messages import Message

TICK_S = 0.02
"""How late a step may close."""

MAX_CONNECTIONS = 4096
MAX_QUEUED_UPDATES_BYTES = 256 * 1024 * 1024
PARTING_S = 3.0
"""For the last bytes to leave and the volunteers to go, once the run has ended."""


@final
class Server:
    """Performs a coordinator's effects over TCP until the run ends."""

    def __init__(self, trainer: Trainer, terminal: Terminal) -> None:
        self._trainer = trainer
        self._terminal = terminal
        self._coordinator = trainer.coordinator(time.monotonic())
        self._channels: dict[Peer, Channel] = {}
        self._conversations: set[asyncio.Task[None]] = set()
        self._last_peer = 0
        # A peer may lag behind by its snapshot, its text and a good number of Updates.
        self._max_queued_bytes = 2 * 3 * trainer.replica.weights.nbytes + MAX_QUEUED_UPDATES_BYTES
        self._closed_bytes_in = 0
        self._closed_bytes_out = 0
        self._traffic_at_close = (0, 0)
        self._compute = ThreadPoolExecutor(max_workers=1)
        self._sampler = Sampler(trainer, terminal)
        self._background: set[asyncio.Task[None]] = set()
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self, listening: socket.socket, host: str, *, volunteers: int, threads: int) -> str:
        """Serves on the socket, starts the local volunteers, and gives the reason why the run ended.

        Raises StorageError when the disk fails.
        """
        loop = asyncio.get_running_loop()
        listener = await asyncio.start_server(self._accept, sock=listening)
        port = listening.getsockname()[1]
        self._terminal.say(f"listening on {host}:{port}; join with: python client.py --server HOST:{port}")
        if volunteers == 0:
            self._terminal.say("waiting for volunteers")
        for interrupt in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(interrupt, self._stop, "the server was stopped")
        local = LocalVolunteers(self._trainer.run.folder.path, host=host, port=port, count=volunteers, threads=threads)
        ticking = asyncio.create_task(self._tick(local))
        try:
            reason = await self._ended
            if self._conversations:
                await asyncio.wait(self._conversations, timeout=PARTING_S)
            return reason
        finally:
            ticking.cancel()
            listener.close()
            for conversation in self._conversations:
                conversation.cancel()
            await asyncio.to_thread(local.stop)
            self._compute.shutdown()

    def _stop(self, reason: str) -> None:
        self._perform(self._coordinator.stop(reason))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._channels) >= MAX_CONNECTIONS or self._ended.done():
            writer.close()
            return
        self._last_peer += 1
        peer = self._last_peer
        channel = Channel(
            Connection("server", now=time.monotonic()), reader, writer, max_queued_bytes=self._max_queued_bytes
        )
        self._channels[peer] = channel
        conversation = asyncio.current_task()
        assert conversation is not None
        self._conversations.add(conversation)
        self._perform(self._coordinator.connected(peer))
        try:
            reason = await channel.run(lambda message: self._receive(peer, message))
        except asyncio.CancelledError:
            return  # the server stops; asyncio would report it as an error of the connection
        except Exception as error:
            self._fail(error)
            return
        finally:
            del self._channels[peer]
            self._conversations.discard(conversation)
            self._closed_bytes_in += channel.connection.bytes_in
            self._closed_bytes_out += channel.connection.bytes_out
        self._perform(self._coordinator.disconnected(peer, reason, time.monotonic()))

    def _receive(self, peer: Peer, message: Message) -> None:
        self._perform(self._coordinator.received(peer, message, time.monotonic()))

    async def _tick(self, local: LocalVolunteers) -> None:
        while not self._ended.done():
            now = time.monotonic()
            self._perform(self._coordinator.tick(now))
            self._terminal.tick(self._coordinator.status(now))
            for problem in local.problems():
                self._terminal.say(problem)
            await asyncio.sleep(TICK_S)

    def _perform(self, effects: Iterable[ServerEffect]) -> None:
        """Performs effects in order; a failure ends the run, since nothing after it may happen."""
        if self._ended.done():
            return
        try:
            for effect in effects:
                self._perform_one(effect)
        except Exception as error:
            self._fail(error)

    def _perform_one(self, effect: ServerEffect) -> None:
        match effect:
            case Send(peer, message):
                self._send(peer, message)
            case SendSnapshot(peer):
                self._send(peer, self._trainer.snapshot())
            case SendBlock(peer, block):
                self._send(peer, self._trainer.token_block(block))
            case Part(peer, farewell):
                self._send(peer, farewell)
            case AppendToJournal(update):
                # Now all Results of the step are in, and its Update is not yet out.
                self._traffic_at_close = self._traffic()
                self._trainer.append(update)
            case ApplyUpdate(update):
                self._start(self._apply(update))
            case SaveCheckpoint():
                self._trainer.save_checkpoint()
            case StepReport():
                self._report(effect)
            case Notice(text):
                self._terminal.say(text)
            case EndRun(reason):
                if not self._ended.done():
                    self._ended.set_result(reason)

    def _send(self, peer: Peer, message: Message) -> None:
        channel = self._channels.get(peer)
        if channel is None:
            return
        try:
            channel.send(message)
        except LocalProtocolError:
            # It parted, and the coordinator will hear of it; anything else is our own fault.
            if not channel.connection.has_parted:
                raise

    async def _apply(self, update: Update) -> None:
        loop = asyncio.get_running_loop()
        digest = await loop.run_in_executor(self._compute, self._trainer.apply, update)
        self._perform(self._coordinator.applied(digest, time.monotonic()))

    def _report(self, report: StepReport) -> None:
        bytes_in, bytes_out = self._traffic_at_close
        metrics = self._trainer.record(report, bytes_in=bytes_in, bytes_out=bytes_out)
        self._terminal.step(metrics, self._coordinator.status(time.monotonic()))
        if self._sampler.is_due(time.monotonic()):
            self._start(asyncio.to_thread(self._sampler.look, self._trainer.snapshot().weights))

    def _traffic(self) -> tuple[int, int]:
        """Bytes in and out since the server started."""
        connections = [channel.connection for channel in self._channels.values()]
        return (
            self._closed_bytes_in + sum(connection.bytes_in for connection in connections),
            self._closed_bytes_out + sum(connection.bytes_out for connection in connections),
        )

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: "asyncio.Task[None]") -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; of a name's addresses, on the first of IPv4. Raises ConfigError with the remedy."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, dualstack_ipv6=both)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            message = f"port: {port} is taken by another program; stop that one, or choose another with --port"
        elif error.errno == errno.EACCES:
            message = f"port: {port} is for the system's own programs; choose another with --port"
        else:
            message = f"host: expected an address of this machine, got {host!r}, {error.strerror}; set --host"
        raise ConfigError(message) from error


def serve(trainer: Trainer, listening: socket.socket) -> int:
    """Runs the server until the run ends; gives the exit code. Raises StorageError when the disk fails."""
    config = trainer.run.config
    terminal = Terminal()

    async def main() -> str:
        return await Server(trainer, terminal).run(
            listening, config.host, volunteers=config.volunteers, threads=config.threads
        )

    try:
        reason = asyncio.run(main())
    finally:
        terminal.end()
    step = trainer.replica.step
    remedy = f"go on with: python server.py --resume {trainer.run.folder.path}"
    if 0 < config.steps <= step:
        remedy += f" --steps {2 * step}"
    if 0.0 < config.duration <= trainer.elapsed_s:
        # Of a run that was resumed with a shorter duration, much more may be over than that.
        remedy += f" --duration {2.0 * max(config.duration, int(trainer.elapsed_s)):.10g}"
    terminal.say(f"{reason}; step {step} is saved; {remedy}")
    return 0
