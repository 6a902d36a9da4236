"""Crews and their coordinator behind the real performer, and machines whose lines and computations wait."""

from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, TypeVar, final

import msgspec
import numpy as np

from fedlearn.coordination.coordinator import Coordinator
from fedlearn.coordination.effects import (
    Apply,
    Begin,
    ClientEffect,
    Compute,
    Evaluate,
    Forward,
    Leave,
    Link,
    Load,
    Notice,
    Peer,
    Reply,
    TakeSeat,
)
from fedlearn.coordination.operator import RunOperator
from fedlearn.coordination.steps.step_source import OwnSteps
from fedlearn.coordination.work.work import Heard, Linked, Unlinked
from fedlearn.coordination.work.worker import Worker
from fedlearn.es.trials import TrialResults
from fedlearn.net.memory import MemoryLink
from fedlearn.server.performer import ServerPerformer
from fedlearn.simulation.kept import Kept
from fedlearn.storage.logs.metrics import StepMetrics
from fedlearn.tasks.parts.computation import Pass, Passed
from fedlearn.wire.encoding.parcel import Parcel
from fedlearn.wire.messages import Activations, Assignment, Farewell, Message, Neighbours
from tests.coordination.coordinator.scene import PLAN, STRATEGY
from tests.coordination.crews.replica import (
    HONEST,
    MEMBER_BYTES,
    MEMORY,
    REPLICA_BYTES,
    TAINTED,
    WHOLE,
    ThreeStages,
    Trainer,
    digest_of,
)
from tests.identities import NONCE, named

T = TypeVar("T")


@final
class Machine:
    """A volunteer whose worker is real and whose weights are a step and whether they have drifted."""

    def __init__(self, name: str, memory_bytes: int, *, now: float, listens_at: int = 0) -> None:
        self.link = MemoryLink(now=now)
        self.worker = Worker(name=name, threads=1, credentials=named(name), memory_bytes=memory_bytes)
        self.tensors = WHOLE
        self.step = -1
        self.has_drifted = self.drifts_next = False
        self.under_way: Compute | None = None
        self.farewell: Farewell | None = None
        self.neighbours = Neighbours(0, None, None)
        self.is_linked = False
        self.forwarded: deque[Activations] = deque()
        """On the line to the next seat."""
        self.perform(self.worker.start(nonce=NONCE, listens_at=listens_at))

    def perform(self, effects: Iterable[ClientEffect]) -> None:
        for effect in effects:
            match effect:
                case Reply(message):
                    if not self.link.client.has_parted:
                        self.link.client.send(message)
                case Link(neighbours):
                    self.neighbours, self.is_linked = neighbours, False
                    self.forwarded.clear()
                case Forward(activations):
                    self.forwarded.append(activations)
                case Leave() | Notice():
                    pass
                case compute:
                    assert self.under_way is None
                    self.under_way = compute

    def hear(self, now: float) -> bool:
        """What the server sent arrives."""
        messages = self.link.to_client(now)
        for message in messages:
            if isinstance(message, Assignment):
                assert self.step <= message.step, "a lease of a step that this replica is past"
            if isinstance(message, Farewell):
                self.farewell = message
            self.perform(self.worker.received(message, now))
        return bool(messages)

    def compute(self, now: float) -> bool:
        """What is under way ends."""
        if self.under_way is None:
            return False
        order, self.under_way = self.under_way, None
        self.perform(self.worker.computed(self._result(order), now))
        return True

    def _result(self, order: Compute) -> bytes | TrialResults | Passed | None:
        match order:
            case TakeSeat(seat):
                ends = (0, *seat.cuts, len(WHOLE))
                self.tensors, self.step = WHOLE[ends[seat.place] : ends[seat.place + 1]], -1
            case Load(snapshot):
                self.step, self.has_drifted = snapshot.step, False
                assert snapshot.digest == digest_of(self.step, self.tensors), "weights of another part"
                return self._digest
            case Begin():
                raise AssertionError("weights travel as snapshots here")
            case Apply(update):
                assert update.step == self.step, "every Update once, in order"
                self.step += 1
                self.has_drifted, self.drifts_next = self.has_drifted or self.drifts_next, False
                return self._digest
            case Evaluate(trials):
                assert trials.step == self.step
                loss = TAINTED if self.has_drifted else HONEST
                return TrialResults(np.full(trials.n_members, loss, np.float32))
            case Pass(trials, _, payload):
                assert trials.step == self.step
                assert len(payload) == (0 if self.tensors[0] == WHOLE[0] else MEMBER_BYTES * trials.n_members)
                is_tainted = self.has_drifted or any(payload)
                if self.tensors == WHOLE[-1:]:
                    losses = np.full(trials.n_members, TAINTED if is_tainted else HONEST, np.float32)
                    return Passed(results=TrialResults(losses))
                return Passed(bytes([is_tainted] * (MEMBER_BYTES * trials.n_members)))
            case _:
                pass
        return None

    @property
    def _digest(self) -> bytes:
        return b"drifted!" if self.has_drifted else digest_of(self.step, self.tensors)


@final
class Scene:
    """Is the performer's shell; every message waits on its line, and every work in a queue."""

    def __init__(self, *, audit: float = 0.0, seed: int = 0, is_direct: bool = False) -> None:
        self.clock = 1000.0
        self.machines: dict[Peer, Machine] = {}
        self.trainer = Trainer()
        self.kept = Kept()
        self.reason: str | None = None
        self._n_peers = 0
        self._works: deque[Callable[[], None]] = deque()
        plan = msgspec.structs.replace(PLAN, replica_bytes=REPLICA_BYTES, audit=audit, steps_per_block=2)
        steps = OwnSteps(plan, STRATEGY)
        self.planner = ThreeStages()
        self.coordinator = Coordinator(
            plan,
            steps,
            step=0,
            last=None,
            digest=digest_of(0),
            now=self.clock,
            lottery=Random(seed),
            planner=self.planner,
            is_direct=is_direct,
        )
        assert self.coordinator.crews is not None
        self.crews = self.coordinator.crews
        trainer: Any = self.trainer  # it has what the effects of crews need
        self.performer = ServerPerformer(trainer, self.coordinator, self, self.kept)
        self.operator = RunOperator(self.coordinator, steps)

    # ---- what happens

    def join(self, memory_bytes: int = MEMORY, *, listens_at: int = 55552) -> Peer:
        self._n_peers += 1
        name = f"volunteer {self._n_peers}"
        self.machines[self._n_peers] = Machine(name, memory_bytes, now=self.clock, listens_at=listens_at)
        address = f"192.0.2.{self._n_peers}"
        self.performer.perform(self.coordinator.connected(self._n_peers, self.clock, nonce=NONCE, address=address))
        return self._n_peers

    def drop(self, peer: Peer) -> None:
        del self.machines[peer]
        self.performer.disconnected(peer, "the line broke")

    def hear(self, peer: Peer) -> bool:
        """What a machine said arrives at the server."""
        machine = self.machines[peer]
        messages = machine.link.to_server(self.clock)
        for message in messages:
            self.performer.perform(self.performer.received(peer, message))
        if machine.link.server.has_parted and peer in self.machines:
            self.drop(peer)
        return bool(messages)

    def carry(self, peer: Peer) -> bool:
        """The next seat is reached, or what was sent to it arrives there."""
        machine = self.machines[peer]
        if (seat := machine.neighbours.next) is None:
            return False
        follower = self.machines.get(int(seat.host.rpartition(".")[2]))
        if follower is None or follower.neighbours.line > machine.neighbours.line:
            self.cut(peer)
            return True
        if follower.neighbours.line < machine.neighbours.line:
            return False  # it has not heard of the line yet
        if not machine.is_linked:
            machine.is_linked = True
            machine.perform(machine.worker.neighbour(Linked(), self.clock))
            return True
        if not machine.forwarded:
            return False
        follower.perform(follower.worker.neighbour(Heard(machine.forwarded.popleft()), self.clock))
        return True

    def cut(self, peer: Peer) -> None:
        """The line to the next seat is lost; each end hears of it."""
        machine = self.machines[peer]
        if (seat := machine.neighbours.next) is None:
            return
        follower = self.machines.get(int(seat.host.rpartition(".")[2]))
        is_there = follower is not None and follower.neighbours.line == machine.neighbours.line
        machine.neighbours = Neighbours(machine.neighbours.line, None, machine.neighbours.before)
        machine.perform(machine.worker.neighbour(Unlinked("the line broke", is_next=True), self.clock))
        if follower is not None and is_there:
            follower.perform(follower.worker.neighbour(Unlinked("the line broke", is_next=False), self.clock))

    def do_work(self) -> bool:
        if not self._works:
            return False
        self._works.popleft()()
        return True

    def wait(self, seconds: float) -> None:
        self.clock += seconds
        self.performer.perform(self.performer.tick())

    def send_away(self, peer: Peer) -> None:
        """The operator does so."""
        volunteer = next((v for v in self.coordinator.roster.volunteers.values() if v.peer == peer), None)
        if volunteer is not None and volunteer.name:
            self.performer.perform(self.operator.send_away(volunteer.name, "Ada", self.clock))

    def settle_for(self, *seconds: float) -> None:
        """Time passes, and a step is taken in between, if one can be."""
        for passed_s in seconds:
            self.settle(len(self.trainer.journal) + 2)
            self.wait(passed_s)
        self.settle(len(self.trainer.journal) + 2)

    def settle(self, until: int | None = None) -> None:
        """Until nothing more happens unless time passes, or so many steps are in the journal."""
        moved = True
        while moved and (until is None or len(self.trainer.journal) < until):
            moved = self.do_work()
            for peer, machine in list(self.machines.items()):
                moved |= machine.hear(self.clock)
                moved |= machine.compute(self.clock)
                moved |= self.carry(peer)
                moved |= self.hear(peer)

    def leased(self) -> bool:
        """Whether the first seat is about to begin with members of a lease, and no other has any."""
        return any(isinstance(machine.under_way, Pass) for machine in self.machines.values())

    def is_loading(self, machine: Machine) -> bool:
        """Whether a machine has its weights under way."""
        return isinstance(machine.under_way, Load)

    # ---- what the performer asks of its shell

    def now(self) -> float:
        return self.clock

    def send(self, peer: Peer, message: Message, parcel: Parcel | None = None) -> None:
        machine = self.machines.get(peer)
        if machine is not None and not machine.link.server.has_parted:
            machine.link.server.send(message, parcel)

    def traffic(self) -> tuple[int, int]:
        return 0, 0

    def traffic_by_kind(self) -> dict[str, tuple[int, int]]:
        return {}

    def work(self, task: Callable[[], T], then: Callable[[T], None]) -> None:
        self._works.append(lambda: then(task()))

    def stepped(self, metrics: StepMetrics) -> None:
        self.kept.on_step(metrics)

    def ended(self, reason: str) -> None:
        self.reason = reason
