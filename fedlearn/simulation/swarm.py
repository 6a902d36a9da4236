"""A whole run in one process: coordinator, workers and replicas over the in-memory transport.

It has the same state machines and sends the same bytes as real machines, without sockets, threads or waiting. Tests,
benchmarks and notebooks use it. Time is what `clock` says.
"""

from collections import deque
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import TypeVar, final

from es_core import usable_processors
from fedlearn.callback import Callback, Callbacks
from fedlearn.client.lending.budget import MemoryBudget
from fedlearn.client.performer import Computed, VolunteerPerformer
from fedlearn.client.volunteer import VolunteerReplica
from fedlearn.coordination.effects import Leave, Peer, ServerEffect
from fedlearn.coordination.work.worker import Worker
from fedlearn.es.sums.moments import moments_bytes
from fedlearn.net.memory import MemoryLink
from fedlearn.server.performer import ServerPerformer
from fedlearn.server.training.trainer import Trainer
from fedlearn.server.viewing import View
from fedlearn.simulation.kept import Kept
from fedlearn.storage.logs.metrics import StepMetrics
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.wire.encoding.parcel import Parcel
from fedlearn.wire.messages import Activations, Message, Neighbours
from fedlearn.wire.proof import NONCE_BYTES, Credentials, Identity
from fedlearn.wire.tally import Kinds, Tally

T = TypeVar("T")


@final
class Participant:
    """One volunteer of a swarm; while `is_stalled` it computes nothing."""

    def __init__(
        self,
        name: str,
        *,
        threads: int,
        task: NamedTask | None,
        clock: Callable[[], float],
        budget: MemoryBudget | None = None,
        moments_bytes: int = 0,
        tally: Tally | None = None,
    ) -> None:
        # The same name is the same volunteer, and a run in one process gives the same twice.
        identity = Identity.of_seed(sha256(name.encode()).digest())
        budget = budget or MemoryBudget()
        self.worker = Worker(
            name=name,
            threads=threads or usable_processors(),
            credentials=Credentials(identity),
            memory_bytes=budget.lent_bytes,
        )
        self.volunteer = VolunteerReplica(threads, task=task, budget=budget)
        self.link = MemoryLink(now=clock(), moments_bytes=moments_bytes, tally=tally)
        self.is_stalled = False
        self.left_by: Leave | None = None
        self.notices: list[str] = []
        self._clock = clock
        self._computes: deque[tuple[Callable[[], Computed], Callable[[Computed], None]]] = deque()
        self._performer = VolunteerPerformer(self.worker, self.volunteer, self)
        self._performer.perform(self.worker.start(nonce=bytes(NONCE_BYTES)))

    def advance(self) -> bool:
        """Receives, computes and answers; False when there was nothing to do."""
        messages = self.link.to_client(self.now())
        for message in messages:
            self._performer.perform(self.worker.received(message, self.now()))
        if self._computes and not self.is_stalled:
            task, then = self._computes.popleft()
            then(task())
            return True
        return bool(messages)

    def leave(self, reason: str) -> None:
        """Leaves the run: sends Goodbye."""
        self._performer.perform(self.worker.stop(reason))

    # ---- what the performer asks of its shell

    def now(self) -> float:
        return self._clock()

    def send(self, message: Message) -> None:
        self.link.client.send(message)

    def compute(self, task: Callable[[], Computed], then: Callable[[Computed], None]) -> None:
        self._computes.append((task, then))

    def say(self, text: str) -> None:
        self.notices.append(text)

    def introduce(self, neighbours: Neighbours) -> None:
        raise AssertionError(f"nobody listens here, and {neighbours} were named")

    def forward(self, activations: Activations) -> None:
        raise AssertionError(f"nobody was named, and {len(activations.payload)} bytes were to go there")

    def left(self, leave: Leave) -> None:
        self.left_by = leave


@final
class Swarm:
    """A server with its volunteers; `advance` moves everything on until nothing is left to do."""

    def __init__(
        self,
        trainer: Trainer,
        clock: Callable[[], float],
        *,
        task: NamedTask | None = None,
        callbacks: Iterable[Callback] = (),
    ) -> None:
        self.trainer = trainer
        self.coordinator = trainer.coordinator(clock())
        self.participants: dict[Peer, Participant] = {}
        begun = trainer.begun()
        self.kept, self._view = Kept(), View(begun.unit)
        self.callbacks = Callbacks([self.kept, self._view, *callbacks])
        self.reason: str | None = None
        """Why the run ended; None while it goes on."""
        self._clock = clock
        self._task = task
        self._performer = ServerPerformer(trainer, self.coordinator, self, self.callbacks)
        self._effects: deque[ServerEffect] = deque()
        self._works: deque[Callable[[], None]] = deque()
        self._last_peer = 0
        self._bytes_in = 0
        self._bytes_out = 0
        self._tally = Tally()
        self.callbacks.on_begin(begun)

    @property
    def metrics(self) -> list[StepMetrics]:
        """The metrics of all steps so far."""
        return self.kept.metrics

    @property
    def notices(self) -> list[str]:
        """The notices that a terminal would show."""
        return self.kept.notices

    def join(self, name: str, *, threads: int = 1, budget: MemoryBudget | None = None) -> Participant:
        """Connects a volunteer, which says Hello; 0 threads: all processors."""
        self._last_peer += 1
        participant = Participant(
            name,
            threads=threads,
            task=self._task,
            clock=self._clock,
            budget=budget,
            moments_bytes=moments_bytes(self.trainer.layout.n_observed),
            tally=self._tally,
        )
        self.participants[self._last_peer] = participant
        self._effects += self.coordinator.connected(self._last_peer, self._clock(), nonce=bytes(NONCE_BYTES))
        return participant

    def kill(self, participant: Participant) -> None:
        """Removes a volunteer's machine; messages that it had sent have arrived."""
        peer = next(peer for peer, other in self.participants.items() if other is participant)
        self._remove(peer, "the connection was closed")

    def advance(self) -> bool:
        """Runs one round: the server's effects, then every volunteer; False when nothing happened."""
        moved = bool(self._effects or self._works)
        effects, self._effects = self._effects, deque()
        self._performer.perform(effects)
        while self._works:
            self._works.popleft()()
        for peer, participant in list(self.participants.items()):
            moved |= participant.advance()
            moved |= self._receive(peer, participant)
            if participant.left_by is not None:
                self._remove(peer, participant.left_by.reason)
        now = self._clock()
        self._effects += self._performer.tick()
        if self.reason is None and self._view.is_due(now):
            self._tell_status()
        return moved or bool(self._effects)

    def settle(self) -> None:
        """Advances until nothing more happens unless time passes."""
        while self.advance():
            pass

    def stop(self, reason: str) -> None:
        """Ends the run, as the server's operator would."""
        self._effects += self.coordinator.stop(reason)
        self.settle()

    # ---- what the performer asks of its shell

    def now(self) -> float:
        return self._clock()

    def send(self, peer: Peer, message: Message, parcel: Parcel | None = None) -> None:
        if peer in self.participants:
            self.participants[peer].link.server.send(message, parcel)

    def traffic(self) -> tuple[int, int]:
        links = [participant.link.server for participant in self.participants.values()]
        return (
            self._bytes_in + sum(link.bytes_in for link in links),
            self._bytes_out + sum(link.bytes_out for link in links),
        )

    def traffic_by_kind(self) -> Kinds:
        return self._tally.kinds

    def work(self, task: Callable[[], T], then: Callable[[T], None]) -> None:
        self._works.append(lambda: then(task()))

    def stepped(self, metrics: StepMetrics) -> None:
        self.callbacks.on_step(metrics)

    def ended(self, reason: str) -> None:
        if self.reason is None:
            self.reason = reason
            self._tell_status(ended=reason)
            self.callbacks.on_end(reason)

    def _tell_status(self, ended: str | None = None) -> None:
        now = self._clock()
        status = self.coordinator.run_status(now)
        self.callbacks.on_status(self._view.completed(status, self.traffic(), now=now, ended=ended))

    def _receive(self, peer: Peer, participant: Participant) -> bool:
        messages = participant.link.to_server(self._clock())
        for message in messages:
            self._effects += self._performer.received(peer, message)
        return bool(messages)

    def _remove(self, peer: Peer, reason: str) -> None:
        link = self.participants.pop(peer).link
        self._bytes_in += link.server.bytes_in
        self._bytes_out += link.server.bytes_out
        self._performer.disconnected(peer, reason)
