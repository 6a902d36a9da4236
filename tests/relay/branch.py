"""Relays in memory: a swarm's participant with participants of its own."""

from collections import deque
from collections.abc import Callable
from hashlib import sha256
from typing import Any, TypeVar, cast, final

from fedlearn.client.performer import Computed
from fedlearn.client.volunteer import VolunteerReplica
from fedlearn.coordination.coordinator import Coordinator
from fedlearn.coordination.effects import Leave, Peer, ServerEffect
from fedlearn.coordination.relay.relay import Relay
from fedlearn.coordination.relay.upstream_steps import UpstreamSteps
from fedlearn.coordination.work.worker import Worker
from fedlearn.net.address import Address
from fedlearn.net.memory import MemoryLink
from fedlearn.relay.keeper import Blocks, RelayKeeper, RelaySettings
from fedlearn.relay.performer import RelayPerformer
from fedlearn.server.performer import ServerPerformer
from fedlearn.simulation.kept import Kept
from fedlearn.simulation.swarm import Participant, Swarm
from fedlearn.storage.logs.metrics import StepMetrics
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.wire.encoding.parcel import Parcel
from fedlearn.wire.messages import Assignment, DataBlock, Message, Result, Welcome
from fedlearn.wire.proof import NONCE_BYTES, Credentials, Identity

T = TypeVar("T")
SERVER = Address("server", 55551)


@final
class Branch:
    """A relay, and those that it serves; a swarm takes it for a participant."""

    def __init__(
        self, name: str, clock: Callable[[], float], *, task: NamedTask | None = None, audit: float = 0.0
    ) -> None:
        self.name = name
        self.volunteer = VolunteerReplica(1, task=task)
        self.blocks = Blocks()
        self.link = MemoryLink(now=clock())
        self.left_by: Leave | None = None
        self.participants: dict[Peer, Participant] = {}
        """Volunteers, and relays that pass for some."""
        self.kept = Kept()
        self.metrics, self.notices = self.kept.metrics, self.kept.notices
        self.handed_up: list[Result] = []
        self.assigned: list[Assignment] = []
        self.ending = ""
        self.coordinator: Coordinator | None = None
        self.keeper: RelayKeeper | None = None
        self._below: ServerPerformer | None = None
        self._clock, self._task, self._audit = clock, task, audit
        self._works: deque[Callable[[], None]] = deque()
        self._last_peer = self._n_effects = 0
        self.relay = Relay(self._serve)
        self.performer = RelayPerformer(self.relay, self.volunteer, self)
        self.connect()

    def connect(self) -> None:
        """A conversation with the server above begins, with what is held once all is computed of the one before."""
        while self._works:
            self._works.popleft()()
        self.left_by = None
        self.link = MemoryLink(now=self._clock())
        identity = Identity.of_seed(sha256(self.name.encode()).digest())
        worker = Worker(name=self.name, threads=1, credentials=Credentials(identity))
        self.performer.perform(self.relay.start(worker, nonce=bytes(NONCE_BYTES), held=self.volunteer.held))

    def cut(self) -> None:
        """The line to the server above breaks."""
        self.relay.lost()

    def join(self, name: str) -> Participant:
        participant = Participant(name, threads=1, task=self._task, clock=self._clock)
        self._add(participant)
        return participant

    def branch(self, name: str) -> "Branch":
        """A relay behind this one."""
        branch = Branch(name, self._clock, task=self._task, audit=self._audit)
        self._add(cast(Participant, branch))
        return branch

    def kill(self, participant: "Participant | Branch") -> None:
        """Its machine disappears; what it had sent has arrived."""
        peer = next(peer for peer, other in self.participants.items() if other is participant)
        del self.participants[peer]
        assert self._below is not None
        self._below.disconnected(peer, "the connection was closed")
        self.performer.turn()

    def advance(self) -> bool:
        """Hears what is above, works, and lets those below have a turn; False when there was nothing to do."""
        messages = self.link.to_client(self.now())
        for message in messages:
            if isinstance(message, DataBlock):
                self.blocks.keep(message)
            if isinstance(message, Assignment):
                self.assigned.append(message)
            self.performer.perform(self.relay.received(message, self.now()))
        moved = bool(messages or self._works)
        if self._works:
            self._works.popleft()()
        for peer, participant in list(self.participants.items()):
            moved |= participant.advance()
            moved |= self._receive(peer, participant)
            if participant.left_by is not None:
                self.kill(participant)
        if self.coordinator is not None:
            self.below(self.coordinator.tick(self.now()))
            n_effects = self._n_effects
            self.performer.turn()
            moved |= self._n_effects > n_effects
        return moved

    def settle(self) -> None:
        """Until nothing happens here without time passing."""
        while self.advance():
            pass

    # ---- what the performers ask of their shell

    def now(self) -> float:
        return self._clock()

    def send_up(self, message: Message) -> None:
        self._n_effects += 1
        if isinstance(message, Result):
            self.handed_up.append(message)
        if not self.link.client.has_parted:  # as a `ServerLine`, which drops what comes after the last word
            self.link.client.send(message)

    def below(self, effects: list[ServerEffect]) -> None:
        self._n_effects += len(effects)
        if effects:
            assert self._below is not None
            self._below.perform(effects)

    def compute(self, task: Callable[[], Computed], then: Callable[[Computed], None]) -> None:
        self.work(task, then)

    def traffic_by_kind(self) -> dict[str, tuple[int, int]]:
        return {}

    def work(self, task: Callable[[], T], then: Callable[[T], None]) -> None:
        self._works.append(lambda: then(task()))

    def say(self, text: str) -> None:
        self.notices.append(text)

    def left(self, leave: Leave) -> None:
        self.left_by = leave

    def send(self, peer: Peer, message: Message, parcel: Parcel | None = None) -> None:
        if peer in self.participants:
            self.participants[peer].link.server.send(message, parcel)

    def traffic(self) -> tuple[int, int]:
        return 0, 0

    def stepped(self, metrics: StepMetrics) -> None:
        self.kept.on_step(metrics)

    def ended(self, reason: str) -> None:
        self.ending = reason

    def _serve(self, welcome: Welcome, step: int, digest: bytes) -> tuple[Coordinator, UpstreamSteps]:
        settings = RelaySettings((SERVER,), audit=self._audit)
        keeper = RelayKeeper(self.volunteer, self.blocks, welcome, settings, step=step, digest=digest)
        self.coordinator = keeper.coordinator(self.now())
        self.keeper = keeper
        self._below = ServerPerformer(keeper, self.coordinator, self, self.kept)
        return self.coordinator, keeper.steps

    def _add(self, participant: Participant) -> None:
        assert self.coordinator is not None, "nobody can join before the weights are there"
        self._last_peer += 1
        self.participants[self._last_peer] = participant
        self.below(self.coordinator.connected(self._last_peer, self.now(), nonce=bytes(NONCE_BYTES)))

    def _receive(self, peer: Peer, participant: Participant) -> bool:
        assert self.coordinator is not None
        messages = participant.link.to_server(self.now())
        for message in messages:
            self.below(self.coordinator.received(peer, message, self.now()))
            self.performer.turn()
        return bool(messages)


def branch_of(swarm: Swarm, name: str, clock: Callable[[], float], **given: Any) -> Branch:  # noqa: ANN401
    """A relay that joins the server itself."""
    branch = Branch(name, clock, **given)
    add_to(swarm, branch)
    return branch


def add_to(swarm: Swarm, branch: Branch) -> None:
    """Connects a relay to the server itself."""
    swarm._last_peer += 1
    swarm.participants[swarm._last_peer] = cast(Participant, branch)
    swarm._effects += swarm.coordinator.connected(swarm._last_peer, branch.now(), nonce=bytes(NONCE_BYTES))
