"""A whole run in one process: coordinator, workers and replicas over the in-memory transport.

The same machines and the same bytes as between real machines, without sockets, threads or waiting: what tests and
benchmarks drive. Time is whatever `clock` says.
"""

from collections import deque
from collections.abc import Callable
from typing import final

from es_core import usable_processors
from fedlearn.app.trainer import Trainer
from fedlearn.app.volunteer import Volunteer
from fedlearn.coordination.effects import (
    AppendToJournal,
    ApplyUpdate,
    ClientEffect,
    EndRun,
    Leave,
    Notice,
    Part,
    Peer,
    Reply,
    SaveCheckpoint,
    Send,
    SendBlock,
    SendSnapshot,
    ServerEffect,
    StepReport,
)
from fedlearn.coordination.worker import Worker
from fedlearn.net.memory import MemoryLink
from fedlearn.storage.metrics import StepMetrics


@final
class Member:
    """One volunteer of a swarm; while `is_stalled` it computes nothing."""

    def __init__(self, name: str, *, threads: int, now: float) -> None:
        self.worker = Worker(name=name, threads=threads or usable_processors())
        self.volunteer = Volunteer(threads)
        self.link = MemoryLink(now=now)
        self.is_stalled = False
        self.left: Leave | None = None
        self.notices: list[str] = []
        self._computes: deque[ClientEffect] = deque()
        self._perform(self.worker.start())

    def advance(self, clock: Callable[[], float]) -> bool:
        """Receives, computes and answers; False when there was nothing to do."""
        now = clock()
        messages = self.link.to_client(now)
        for message in messages:
            self._perform(self.worker.received(message, now))
        if self._computes and not self.is_stalled:
            compute = self._computes.popleft()
            assert not isinstance(compute, Reply | Notice | Leave)
            result = self.volunteer.perform(compute)
            self._perform(self.worker.computed(result, clock()))
            return True
        return bool(messages)

    def leave(self, reason: str) -> None:
        """Says Goodbye."""
        self._perform(self.worker.stop(reason))

    def _perform(self, effects: list[ClientEffect]) -> None:
        for effect in effects:
            match effect:
                case Reply(message):
                    self.link.client.send(message)
                case Notice(text):
                    self.notices.append(text)
                case Leave():
                    self.left = effect
                case compute:
                    self._computes.append(compute)


@final
class Swarm:
    """A server with its volunteers; `advance` moves everything on until nothing is left to do."""

    def __init__(self, trainer: Trainer, clock: Callable[[], float]) -> None:
        self.trainer = trainer
        self.coordinator = trainer.coordinator(clock())
        self.members: dict[Peer, Member] = {}
        self.metrics: list[StepMetrics] = []
        self.notices: list[str] = []
        self.ended: str | None = None
        self._clock = clock
        self._effects: deque[ServerEffect] = deque()
        self._last_peer = 0
        self._bytes_in = 0
        self._bytes_out = 0
        self._traffic_at_close = (0, 0)

    def join(self, name: str, *, threads: int = 1) -> Member:
        """A volunteer connects and says Hello; 0 threads: all processors."""
        self._last_peer += 1
        member = Member(name, threads=threads, now=self._clock())
        self.members[self._last_peer] = member
        self._effects += self.coordinator.connected(self._last_peer)
        return member

    def kill(self, member: Member) -> None:
        """The volunteer's machine disappears; what it had sent has arrived."""
        peer = next(peer for peer, other in self.members.items() if other is member)
        self._remove(peer, "the connection was closed")

    def advance(self) -> bool:
        """One round: the server's effects, then every volunteer; False when nothing happened."""
        moved = bool(self._effects)
        while self._effects:
            self._perform(self._effects.popleft())
        for peer, member in list(self.members.items()):
            moved |= member.advance(self._clock)
            moved |= self._receive(peer, member)
            if member.left is not None:
                self._remove(peer, member.left.reason)
        self._effects += self.coordinator.tick(self._clock())
        return moved or bool(self._effects)

    def settle(self) -> None:
        """Advances until nothing happens any more without time passing."""
        while self.advance():
            pass

    def stop(self, reason: str) -> None:
        """The person at the server ends the run."""
        self._effects += self.coordinator.stop(reason)
        self.settle()

    def _receive(self, peer: Peer, member: Member) -> bool:
        now = self._clock()
        messages = member.link.to_server(now)
        for message in messages:
            self._effects += self.coordinator.received(peer, message, now)
        return bool(messages)

    def _traffic(self) -> tuple[int, int]:
        """Bytes in and out since the swarm began."""
        links = [member.link.server for member in self.members.values()]
        return (
            self._bytes_in + sum(link.bytes_in for link in links),
            self._bytes_out + sum(link.bytes_out for link in links),
        )

    def _remove(self, peer: Peer, reason: str) -> None:
        link = self.members.pop(peer).link
        self._bytes_in += link.server.bytes_in
        self._bytes_out += link.server.bytes_out
        self._effects += self.coordinator.disconnected(peer, reason, self._clock())

    def _perform(self, effect: ServerEffect) -> None:
        match effect:
            case Send(peer, message) if peer in self.members:
                self.members[peer].link.server.send(message)
            case SendSnapshot(peer) if peer in self.members:
                self.members[peer].link.server.send(self.trainer.snapshot())
            case SendBlock(peer, block) if peer in self.members:
                self.members[peer].link.server.send(self.trainer.token_block(block))
            case Part(peer, farewell) if peer in self.members:
                self.members[peer].link.server.send(farewell)
            case AppendToJournal(update):
                self._traffic_at_close = self._traffic()
                self.trainer.append(update)
            case ApplyUpdate(update):
                digest = self.trainer.apply(update)
                self._effects += self.coordinator.applied(digest, self._clock())
            case SaveCheckpoint():
                self.trainer.save_checkpoint()
            case StepReport():
                bytes_in, bytes_out = self._traffic_at_close
                self.metrics.append(self.trainer.record(effect, bytes_in=bytes_in, bytes_out=bytes_out))
            case Notice(text):
                self.notices.append(text)
            case EndRun(reason):
                self.ended = reason
