"""`fedlearn serve`: the asyncio shell around the coordinator, with the local volunteers that it starts."""

import asyncio
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar, final

import msgspec

from fedlearn.callback import Callback, Callbacks
from fedlearn.config import ConfigError
from fedlearn.coordination.coordinator import Coordinator
from fedlearn.coordination.effects import Peer, ServerEffect
from fedlearn.coordination.status import RunStatus
from fedlearn.es.layout import Float32Array
from fedlearn.es.sums.moments import moments_bytes
from fedlearn.net.address import Address, is_loopback
from fedlearn.net.channel import Channel
from fedlearn.net.stream import Stream
from fedlearn.net.tcp import TcpStream
from fedlearn.server.budget import MAX_HELD_BYTES, over_budget
from fedlearn.server.connection_policy import ConnectionPolicy
from fedlearn.server.performer import ServerPerformer
from fedlearn.server.renewal import Renewal
from fedlearn.server.security import ServerSecurity
from fedlearn.server.training.examination import Agenda
from fedlearn.server.training.keeper import Keeper
from fedlearn.server.viewing import View
from fedlearn.storage.logs.metrics import StepMetrics
from fedlearn.system.signals import STOP_SIGNALS, listen
from fedlearn.wire.connection import Connection
from fedlearn.wire.encoding.parcel import Parcel
from fedlearn.wire.errors import LocalProtocolError, RemoteProtocolError
from fedlearn.wire.messages import Message
from fedlearn.wire.proof import NONCE_BYTES
from fedlearn.wire.tally import Kinds, Tally

TICK_S = 0.02
"""Seconds by which a step may close late."""

BUDGET_INTERVAL_S = 1.0
LEAST_LAG_BYTES = 64 * 1024
"""Bytes of Updates that may wait for a peer, however small the weights are, before it is sent the weights instead."""

LEAST_LAG_UPDATES = 4
"""Each Update of large steps may be longer than the weights, and one or two wait for any peer from time to time."""

MAX_QUEUED_UPDATES_BYTES = 256 * 1024 * 1024
PARTING_S = 3.0
"""Seconds for the last bytes and the volunteers to leave when the run has ended."""

T = TypeVar("T")


class Local(Protocol):
    """Volunteers on the server's own machine."""

    n_started: int
    """Number of volunteers that were started."""
    server: str
    """The address that volunteers are given when they start."""

    def problems(self) -> list[str]:
        """Texts about volunteers that died."""

    def stop(self) -> None:
        """Waits for them to end."""


@final
class Server:
    """Serves a run over TCP until the run ends; it is the shell of the performer."""

    def __init__(
        self,
        trainer: Keeper,
        callbacks: Iterable[Callback],
        security: ServerSecurity | None = None,
        *,
        page: Awaitable[str] | None = None,
        compute: ThreadPoolExecutor | None = None,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """`page` gives what is said of a page that shows the run; `compute` is one thread for all work, where it is
        shared; `then` is called after everything that happens."""
        self._trainer = trainer
        self._page = page
        self._then = then
        self._security = security or ServerSecurity()
        self._renewal = Renewal(self._security)
        self._coordinator = trainer.coordinator(self.now(), self._security.rules)
        self._begun = trainer.begun()
        self._view = View(self._begun.unit)
        self._told = Callbacks([self._view, *callbacks])
        self._performer = ServerPerformer(trainer, self._coordinator, self, self._told)
        self._channels: dict[Peer, Channel] = {}
        self._conversations: set[asyncio.Task[None]] = set()
        self._last_peer = self._port = 0
        layout = trainer.layout
        estimate_bytes = layout.size + len(layout.row_lengths)
        self._limits = {"estimate_bytes": estimate_bytes, "moments_bytes": moments_bytes(layout.n_observed)}
        # A peer may lag behind by its weights, its data and a large number of Updates.
        weights_bytes = 4 * layout.size
        self._max_queued_bytes = 2 * 3 * weights_bytes + MAX_QUEUED_UPDATES_BYTES
        self._max_held_bytes = 2 * 3 * weights_bytes + MAX_HELD_BYTES
        self._budget_due = 0.0
        self._door = ConnectionPolicy()
        self._closed_bytes_in = 0
        self._closed_bytes_out = 0
        self._tally = Tally()
        self._is_compute_shared = compute is not None
        self._compute = compute or ThreadPoolExecutor(max_workers=1)
        self._order_inbox = trainer.order_inbox(self._coordinator)
        self._agenda = Agenda()
        self._is_looking = False
        self._background: set[asyncio.Task[None]] = set()
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self, listening: socket.socket, local: Callable[[int], Local]) -> str:
        """Serves on the socket, starts the local volunteers, and gives the reason why the run ended.

        Raises:
            StorageError: the disk refuses.
        """
        self._told.on_begin(self._begun)
        try:
            return await self._serve(listening, local)
        except Exception as error:
            self._fail(error)
            raise
        finally:
            self._told.on_status(self._status(ended=self._reason))
            self._told.on_end(self._reason)

    async def _serve(self, listening: socket.socket, local: Callable[[int], Local]) -> str:
        listener = await self._security.listen(self._accept, listening)
        self._port = port = listening.getsockname()[1]
        if threading.current_thread() is threading.main_thread():
            listen(asyncio.get_running_loop(), STOP_SIGNALS, lambda: self.stop("the server was stopped"))
        volunteers = local(port)
        self._start(self._introduce(port, n_local=volunteers.n_started))
        if self._order_inbox is not None:
            self._order_inbox.open(self)
        ticking = asyncio.create_task(self._tick(volunteers))
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
            await asyncio.to_thread(volunteers.stop)
            if not self._is_compute_shared:
                self._compute.shutdown()

    async def _introduce(self, port: int, *, n_local: int) -> None:
        """Says where the server is and where it is seen, in one line where it trains alone, and how others join."""
        host = self._security.settings.host
        address = self._security.public_address(port, run=self._trainer.run_name)
        more = " (--host 0.0.0.0 lets others in)" if is_loopback(host) else ""
        listening = f"listening on {Address(host, port).place}{more}"
        if is_loopback(host) and not address.has_tls and n_local:
            page = await self._page if self._page is not None else ""
            self.say(f"{listening}; {page}" if page else listening)
            for line in self._security.notices:
                self.say(line)
            return
        self.say(f"{listening}; join with: {self._trainer.invitation(address)}")
        for line in self._security.notices:
            self.say(line)
        if n_local == 0:
            self.say("waiting for volunteers")
        if self._page is not None and (page := await self._page):
            self.say(page)

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator of the volunteers."""
        return self._coordinator

    def stop(self, reason: str) -> None:
        """Ends the run cleanly."""
        self.perform(self._coordinator.stop(reason))

    # ---- what the performer asks of its shell

    def now(self) -> float:
        return time.monotonic()

    def send(self, peer: Peer, message: Message, parcel: Parcel | None = None) -> None:
        channel = self._channels.get(peer)
        if channel is None:
            return
        try:
            channel.send(message, parcel)
            if parcel is not None and parcel.has_weights:
                self._budget_due = 0.0
        except LocalProtocolError as error:
            # It parted, and the coordinator will hear of that; anything else is our own fault, and ends only this peer.
            if not channel.connection.has_parted:
                channel.drop(f"{type(error).__name__}: {error}")

    def traffic(self) -> tuple[int, int]:
        connections = [channel.connection for channel in self._channels.values()]
        return (
            self._closed_bytes_in + sum(connection.bytes_in for connection in connections),
            self._closed_bytes_out + sum(connection.bytes_out for connection in connections),
        )

    def traffic_by_kind(self) -> Kinds:
        return self._tally.kinds

    def work(self, task: Callable[[], T], then: Callable[[T], None]) -> None:
        self._start(self._work(task, then))

    def say(self, text: str) -> None:
        """Shows a line to the person who runs the server."""
        self._told.on_notice(text)

    def stepped(self, metrics: StepMetrics) -> None:
        self._told.on_step(metrics)
        trainer, n_steps = self._trainer, metrics.step + 1
        if self._is_looking:
            return
        if self._agenda.is_due(self.now(), trainer.sample_time, step=n_steps, every=trainer.sample_every):
            self._is_looking = True
            self._told.on_look(n_steps)
            # Copied among the work, between two steps.
            self.work(trainer.copy, lambda weights: self._start(self._look(weights, n_steps)))

    def ended(self, reason: str) -> None:
        if not self._ended.done():
            self._ended.set_result(reason)

    # ---- connections and time

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream, conversation = TcpStream(reader, writer), asyncio.current_task()
        assert conversation is not None
        self._conversations.add(conversation)
        try:
            now, address = self.now(), stream.peer_address
            if objection := self._door.objection(address, n_inside=len(self._channels), now=now):
                await self._door.turn_away(stream, objection, now=now)
            elif not self._ended.done():
                await self._converse(stream)
        except asyncio.CancelledError:
            return  # the server stops; asyncio would report it as an error of the connection
        finally:
            self._conversations.discard(conversation)
            stream.abort()

    async def _converse(self, stream: Stream) -> None:
        self._last_peer += 1
        peer = self._last_peer
        connection = Connection("server", now=self.now(), tally=self._tally, **self._limits)
        channel = Channel(connection, stream, max_queued_bytes=self._max_queued_bytes)
        self._channels[peer] = channel
        try:
            await asyncio.sleep(self._door.refusals.turn_s(stream.peer_address, self.now()))
            self.perform(
                self._coordinator.connected(
                    peer,
                    self.now(),
                    nonce=secrets.token_bytes(NONCE_BYTES),
                    address=stream.peer_address,
                    binding=self._security.binding,
                )
            )
            reason = await channel.run(lambda message: self._receive(peer, message))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"  # whatever it was, it ends this peer only
        finally:
            del self._channels[peer]
            self._closed_bytes_in += connection.bytes_in
            self._closed_bytes_out += connection.bytes_out
        if channel.has_flooded:
            self._door.refusals.punish(stream.peer_address, self.now())
        self._guarded(lambda: self._performer.disconnected(peer, reason))

    def _receive(self, peer: Peer, message: Message) -> None:
        try:
            effects = self._performer.received(peer, message)
        except Exception as error:
            what = f"its {type(message).__name__} raised {type(error).__name__}: {error}"
            raise RemoteProtocolError(what) from error
        if effects:  # a Result usually has none
            self.perform(effects)
        else:
            self._then()

    def _keep_budget(self, now: float) -> None:
        if now >= self._budget_due:
            self._budget_due = now + BUDGET_INTERVAL_S
            self._relieve()
            for channel in over_budget(self._channels.values(), max_bytes=self._max_held_bytes, now=now):
                channel.drop("it kept too much waiting, slower than others who need the room")

    def _relieve(self) -> None:
        """Sends the weights to peers for which the Updates that wait are longer than those."""
        trainer = self._trainer
        most = max(trainer.snapshot_bytes, LEAST_LAG_BYTES, LEAST_LAG_UPDATES * trainer.update_bytes)
        for peer, channel in self._channels.items():
            if channel.connection.update_bytes_queued > most:
                self._performer.fell_behind(peer)

    def _renew(self, now: float, local: Local) -> None:
        """Applies changes of the security's files."""
        try:
            security = self._renewal.changed(now)
        except ConfigError as error:
            self._told.on_problem(f"{error}; until it is mended the previous file is used")
            return
        if security is not None:
            self.say("the files of --allow and --tls-cert were read again")
            self._security, local.server = security, str(security.local_address(self._port))
            self.perform(self._coordinator.allow(security.rules.allowed, now))

    async def _tick(self, local: Local) -> None:
        while not self._ended.done():
            now = self.now()
            self.perform(self._performer.tick())
            self._keep_budget(now)
            if self._view.is_due(now):
                self._told.on_status(self._status())
            self._renew(now, local)
            if self._order_inbox is not None and self._order_inbox.is_due(now):
                self._start(self._order_inbox.look(self))
            if not self._coordinator.loop.is_over:  # else they were told to go
                for problem in local.problems():
                    self._told.on_problem(problem)
            await asyncio.sleep(TICK_S)

    def perform(self, effects: Iterable[ServerEffect]) -> None:
        """Performs effects, unless the run has ended."""
        self._guarded(lambda: self._performer.perform(effects))

    def _guarded(self, act: Callable[[], None]) -> None:
        """Acts, unless the run has ended; a failure ends it, since nothing after it may happen."""
        if self._ended.done():
            return
        try:
            act()
            self._then()
        except Exception as error:
            self._fail(error)

    async def _work(self, task: Callable[[], T], then: Callable[[T], None]) -> None:
        try:
            result = await asyncio.get_running_loop().run_in_executor(self._compute, task)
        except Exception as error:
            # The run fails at once: the next task might be its regular end, which would hide this error.
            self._fail(error)
            return
        self._guarded(lambda: then(result))

    async def _look(self, weights: Float32Array, step: int) -> None:
        """Examines the weights while training goes on."""
        found = await asyncio.to_thread(self._trainer.examine, weights)
        self._is_looking = False
        self._told.on_examined(step, found.figures, found.sample)

    def _status(self, ended: str | None = None) -> RunStatus:
        now = self.now()
        status = self._coordinator.run_status(now)
        if status.state == "waiting":
            status = msgspec.structs.replace(status, reason=self._performer.waiting)
        return self._view.completed(status, self.traffic(), now=now, ended=ended)

    @property
    def _reason(self) -> str:
        """Why the run ended; without another reason the server was stopped."""
        if not self._ended.done() or self._ended.cancelled():
            return "the server was stopped"
        error = self._ended.exception()
        return self._ended.result() if error is None else str(error)

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
