"""A whole run in virtual time: the time that it would take on machines and connections of given speeds.

The coordinator, the workers and their messages are real, and so are the losses: the run learns as it would. Only its
seconds are made up, from what computing and sending cost. The server has a core for messages and one for its replica.
Lines lose nothing and have no overhead of TCP or TLS.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar, final

from fedlearn.coordination.effects import Peer
from fedlearn.es.update import Update
from fedlearn.server.performer import ServerPerformer
from fedlearn.server.server import TICK_S
from fedlearn.server.training.trainer import Trainer
from fedlearn.simulation.costs import Costs, LinkSpeeds
from fedlearn.simulation.kept import Kept
from fedlearn.simulation.shared_replica import SharedReplica
from fedlearn.simulation.timed_volunteer import TimedVolunteer, taken, update_s
from fedlearn.simulation.timeline import Lane, SimulatedLink, Timeline
from fedlearn.storage.logs.metrics import Kinds, StepMetrics
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.wire.encoding.parcel import Parcel
from fedlearn.wire.messages import Message, Result
from fedlearn.wire.proof import NONCE_BYTES

T = TypeVar("T")


@final
class TimedSwarm:
    """A server and its volunteers, which all join at second 0; `others` come last, on machines and lines of their own.

    Raises:
        ValueError: the run has audits, for which there is no time.
    """

    def __init__(
        self,
        trainer: Trainer,
        n_volunteers: int,
        *,
        costs: Costs,
        lines: LinkSpeeds,
        task: NamedTask | None = None,
        others: Sequence[tuple[Costs, LinkSpeeds]] = (),
    ) -> None:
        if (audit := trainer.run.config.server.audit) > 0.0:
            raise ValueError(f"audit: expected 0 in virtual time, got {audit:g}; set audit = 0")
        self.folder = trainer.run.folder
        self.metrics: list[StepMetrics] = []
        self.reason: str | None = None
        """Why the run ended; None while it goes on."""
        self._timeline, self._costs = Timeline(), costs
        self._coordinator = trainer.coordinator(0.0)
        self._performer = ServerPerformer(trainer, self._coordinator, self, Kept())
        self._messages, self._computing = Lane(self._timeline), Lane(self._timeline)
        self._in, self._out = (
            SimulatedLink(self._timeline, lines.server_mbit),
            SimulatedLink(self._timeline, lines.server_mbit),
        )
        self._update: Update | None = None
        """The last Update that was sent."""
        replica = SharedReplica(task)
        self.volunteers = {
            peer: TimedVolunteer(
                f"volunteer {peer}",
                replica,
                self._timeline,
                costs=own_costs,
                lines=own_lines,
                arrived=partial(self._arrived, peer),
            )
            for peer, (own_costs, own_lines) in enumerate([(costs, lines)] * n_volunteers + [*others], start=1)
        }
        for peer, volunteer in self.volunteers.items():
            self._performer.perform(self._coordinator.connected(peer, 0.0, nonce=bytes(NONCE_BYTES)))
            volunteer.join()
        self._tick()

    def advance(self) -> bool:
        """Goes on until a step is over; False once the run is."""
        n_steps = len(self.metrics)
        while self.reason is None and len(self.metrics) == n_steps:
            self.go_on()
        return self.reason is None

    def go_on(self) -> None:
        """Goes on to whatever happens next."""
        self._timeline.advance()

    # ---- what the performer asks of its shell

    def now(self) -> float:
        return self._timeline.now

    def send(self, peer: Peer, message: Message, parcel: Parcel | None = None) -> None:
        if isinstance(message, Update) and message is not self._update:
            self._update = message
            self._messages.take(self._costs.close_s)
        link = self.volunteers[peer].link.server
        link.send(message, parcel)
        self._messages.take(self._costs.send_s, partial(self._leave, self.volunteers[peer], taken(link)))

    def traffic(self) -> tuple[int, int]:
        links = [volunteer.link.server for volunteer in self.volunteers.values()]
        return sum(link.bytes_in for link in links), sum(link.bytes_out for link in links)

    def traffic_by_kind(self) -> Kinds:
        return {}  # nobody asks what the bytes are

    def work(self, task: Callable[[], T], then: Callable[[T], None]) -> None:
        result = task()
        took = update_s(self._update, self._costs) if isinstance(result, bytes) and self._update is not None else 0.0
        self._computing.take(took, lambda: then(result))

    def stepped(self, metrics: StepMetrics) -> None:
        self.metrics.append(metrics)

    def ended(self, reason: str) -> None:
        self.reason = reason

    def _tick(self) -> None:
        self._performer.perform(self._performer.tick())
        self._timeline.after(TICK_S, self._tick)

    def _leave(self, volunteer: TimedVolunteer, data: bytes) -> None:
        self._out.carry(data, volunteer.deliver)

    def _arrived(self, peer: Peer, data: bytes) -> None:
        self._in.carry(data, partial(self._receive, peer))

    def _receive(self, peer: Peer, data: bytes) -> None:
        for message in self.volunteers[peer].link.server.receive_data(data, self.now()):
            took = self._costs.take_s if isinstance(message, Result) else 0.0
            self._messages.take(took, partial(self._take, peer, message))

    def _take(self, peer: Peer, message: Message) -> None:
        self._performer.perform(self._performer.received(peer, message))
