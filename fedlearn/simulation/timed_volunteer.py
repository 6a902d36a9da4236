"""A volunteer of one core in virtual time, on a line of its own."""

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import final

from fedlearn.coordination.effects import Apply, ClientEffect, Compute, Evaluate, Forward, Leave, Link, Notice, Reply
from fedlearn.coordination.work.worker import Worker
from fedlearn.es.update import Update
from fedlearn.net.memory import MemoryLink
from fedlearn.simulation.costs import Costs, LinkSpeeds
from fedlearn.simulation.shared_replica import SharedReplica
from fedlearn.simulation.timeline import Lane, SimulatedLink, Timeline
from fedlearn.wire.connection import Connection
from fedlearn.wire.messages import Message
from fedlearn.wire.proof import NONCE_BYTES, Credentials, Identity


def taken(connection: Connection) -> bytes:
    """The bytes that a connection has to send."""
    parts = []
    while data := connection.data_to_send():
        parts.append(data)
    return b"".join(parts)


def update_s(update: Update, costs: Costs) -> float:
    """Seconds in which a core takes a step."""
    return costs.step_s + (0.0 if update.is_summed else update.n_members * costs.noise_s)


@final
class TimedVolunteer:
    """A real worker, whose computations and messages take virtual time; `arrived` takes its bytes at the server."""

    def __init__(
        self,
        name: str,
        replica: SharedReplica,
        timeline: Timeline,
        *,
        costs: Costs,
        lines: LinkSpeeds,
        arrived: Callable[[bytes], None],
    ) -> None:
        identity = Identity.of_seed(sha256(name.encode()).digest())
        self.worker = Worker(name=name, threads=1, credentials=Credentials(identity))
        self.link = MemoryLink(now=timeline.now)
        self.left_by: Leave | None = None
        self._replica, self._timeline, self._costs = replica, timeline, costs
        self._arrived = arrived
        self._core = Lane(timeline)
        self._up = SimulatedLink(timeline, lines.up_mbit, lines.latency_s)
        self._down = SimulatedLink(timeline, lines.down_mbit, lines.latency_s)

    def join(self) -> None:
        """Says Hello."""
        self._perform(self.worker.start(nonce=bytes(NONCE_BYTES)))

    def deliver(self, data: bytes) -> None:
        """Sends bytes of the server over the connection."""
        self._down.carry(data, self._receive)

    def _receive(self, data: bytes) -> None:
        now = self._timeline.now
        for message in self.link.client.receive_data(data, now):
            self._perform(self.worker.received(message, now))

    def _perform(self, effects: Iterable[ClientEffect]) -> None:
        for effect in effects:
            match effect:
                case Reply(message):
                    self._send(message)
                case Leave():
                    self.left_by = effect
                case Notice() | Link() | Forward():
                    pass  # no volunteer here talks to another one
                case compute:
                    self._compute(compute)

    def _compute(self, compute: Compute) -> None:
        result = self._replica.perform(compute)
        self._core.take(self._seconds(compute), lambda: self._perform(self.worker.computed(result, self._timeline.now)))

    def _seconds(self, compute: Compute) -> float:
        match compute:
            case Evaluate(trials):
                noise_s = 0.0 if trials.shaping is None else self._costs.noise_s
                return trials.n_members * (self._costs.member_s + noise_s)
            case Apply(update):
                return update_s(update, self._costs)
            case _:
                return 0.0

    def _send(self, message: Message) -> None:
        self.link.client.send(message)
        self._up.carry(taken(self.link.client), self._arrived)
