"""Performs a coordinator's effects in order, over sockets and in memory alike."""

from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol, TypeVar, final

from fedlearn.callback import Callback
from fedlearn.coordination.audits.audit import Claim
from fedlearn.coordination.coordinator import Coordinator
from fedlearn.coordination.crews.crew_plan import Tensors
from fedlearn.coordination.effects import (
    AppendToJournal,
    ApplyUpdate,
    Broadcast,
    DigestParts,
    Dismiss,
    EndRun,
    Joined,
    Left,
    Notice,
    Peer,
    Recompute,
    RecordCredit,
    RecordVerdict,
    SaveCheckpoint,
    Send,
    SendBlock,
    SendPart,
    SendWeights,
    ServerEffect,
)
from fedlearn.coordination.steps.report import StepReport
from fedlearn.es.update import Update
from fedlearn.server.lasting import Lasting
from fedlearn.server.training.keeper import Keeper
from fedlearn.server.training.recent import Outgoing
from fedlearn.storage.checkpoint import step_of
from fedlearn.storage.logs.metrics import Kinds, StepMetrics, StepTraffic
from fedlearn.wire.encoding.parcel import Parcel, pack
from fedlearn.wire.messages import Message
from fedlearn.wire.tally import grown

WAITING_S = 3.0
"""Seconds for which volunteers wait before it is reported, since those that start together come one after another."""

T = TypeVar("T")


class ServerShell(Protocol):
    """The surroundings of a performer: connections, a clock, and a place for work that takes long."""

    def now(self) -> float:
        """Seconds of a clock that never goes back."""

    def send(self, peer: Peer, message: Message, parcel: Parcel | None = None) -> None:
        """Queues a message, if the peer is still there; give its `parcel` where it has been packed before."""

    def traffic(self) -> tuple[int, int]:
        """Bytes in and out since the start."""

    def traffic_by_kind(self) -> Kinds:
        """Bytes in and out by kind of message."""

    def work(self, task: Callable[[], T], then: Callable[[T], None]) -> None:
        """Runs a task after all that were given before, and calls `then` with its result."""

    def stepped(self, metrics: StepMetrics) -> None:
        """Takes the figures of a step that is over."""

    def ended(self, reason: str) -> None:
        """Ends the run, when all work is done."""


@final
class ServerPerformer:
    """Performs the effects of one run, in the order in which the coordinator gave them."""

    def __init__(
        self,
        trainer: Keeper,
        coordinator: Coordinator,
        shell: ServerShell,
        told: Callback,
    ) -> None:
        """`told` receives all events except steps, which the shell receives first."""
        self._trainer = trainer
        self._coordinator = coordinator
        self._crews = coordinator.crews
        self._shell = shell
        self._told = told
        self._effects: deque[ServerEffect] = deque()
        self._is_busy = False
        self._behind_weights: dict[Peer, list[tuple[Message, Parcel | None]]] = {}
        """Messages that wait until a peer's weights are encoded: they must not overtake those."""
        self._packed_update: tuple[Update, Parcel] | None = None
        self._waiting = Lasting(WAITING_S)
        self._bytes_at_close = (0, 0)
        self._kinds_at_close: Kinds = {}
        self._traffic = StepTraffic()
        """Traffic of the step that has closed."""

    def perform(self, effects: Iterable[ServerEffect]) -> None:
        """Performs effects, and those that they lead to."""
        self._effects += effects
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._effects:
                self._perform_one(self._effects.popleft())
        finally:
            self._is_busy = False

    def received(self, peer: Peer, message: Message) -> list[ServerEffect]:
        """The effects of a message that its connection found legal."""
        return self._coordinator.received(peer, message, self._shell.now())

    def disconnected(self, peer: Peer, reason: str) -> None:
        """Takes note that a peer is gone."""
        self._behind_weights.pop(peer, None)
        self.perform(self._coordinator.disconnected(peer, reason, self._shell.now()))

    @property
    def waiting(self) -> str:
        """Describes what seats wait for; empty where all can work."""
        return self._crews.waiting(self._shell.now()) if self._crews is not None else ""

    def tick(self) -> list[ServerEffect]:
        """The effects of the time that passed."""
        now = self._shell.now()
        if new := self._waiting.new(self.waiting, now):
            self._told.on_notice(new)
        return self._coordinator.tick(now)

    def fell_behind(self, peer: Peer) -> None:
        """Sends a peer the weights instead of the Updates that wait for it, which are longer by now."""
        self.perform(self._coordinator.fell_behind(peer, self._shell.now()))

    def _perform_one(self, effect: ServerEffect) -> None:
        match effect:
            case Send(peer, message):
                self._send(peer, message)
            case Broadcast(peers, message):
                parcel = self._parcel_of(message)
                for peer in peers:
                    self._send(peer, message, parcel)
            case SendWeights(peer, may_replay, held):
                if held is not None and (missed := self._trainer.missed(held)) is not None:
                    for message, parcel in missed:
                        self._send(peer, message, parcel)
                else:
                    self._send_weights(peer, lambda: self._trainer.weights_messages(may_replay=may_replay))
            case SendPart(peer, tensors):
                self._send_weights(peer, lambda: [self._trainer.parts.message(tensors)])
            case DigestParts(wanted):
                self._digest(wanted)
            case SendBlock(peer, block):
                self._send(peer, *self._trainer.data_block(block))
            case Dismiss(peer, farewell):
                self._behind_weights.pop(peer, None)
                self._shell.send(peer, farewell)
            case AppendToJournal(update):
                # All Results of the step are in by now, and its Update has not been sent.
                self._traffic = self._take_traffic()
                self._packed_update = (update, self._trainer.append(update))
            case ApplyUpdate(update):
                self._shell.work(lambda: self._trainer.apply(update), self._applied)
            case Recompute(claim):
                self._recompute(claim)
            case RecordVerdict(verdict):
                self._trainer.record_verdict(verdict)
            case RecordCredit(entry):
                self._trainer.record_credit(entry)
            case SaveCheckpoint():
                self._shell.work(self._trainer.save_checkpoint, self._saved)
            case StepReport():
                self._shell.stepped(self._trainer.record(effect, self._traffic))
            case Notice(text):
                self._told.on_problem(text)  # whatever the coordinator says is one
            case Joined(name, is_local):
                if is_local:
                    self._told.on_local_join(name)
                else:
                    self._told.on_join(name)
                self._tell_costs()
            case Left(name, reason):
                self._told.on_leave(name, reason)
            case EndRun(reason):
                self._shell.work(lambda: self._trainer.ending(reason), self._shell.ended)

    def _take_traffic(self) -> StepTraffic:
        """The bytes that went over the connections since the last call."""
        (bytes_in, bytes_out), kinds = self._bytes_at_close, self._kinds_at_close
        self._bytes_at_close, self._kinds_at_close = self._shell.traffic(), self._shell.traffic_by_kind()
        return StepTraffic(
            bytes_in=self._bytes_at_close[0] - bytes_in,
            bytes_out=self._bytes_at_close[1] - bytes_out,
            kinds=grown(kinds, self._kinds_at_close),
            relayed=self._crews.take_relayed() if self._crews is not None else {},
        )

    def _tell_costs(self) -> None:
        """Reports what crews send, and again when their shards change."""
        if self._crews is not None and (costs := self._crews.take_costs()):
            self._told.on_notice(costs)

    def _recompute(self, claim: Claim) -> None:
        self._shell.work(
            lambda: self._trainer.audit(claim),
            lambda found: self.perform(self._coordinator.recomputed(claim, *found, self._shell.now())),
        )

    def _saved(self, path: Path | None) -> None:
        if path is not None:
            self._told.on_checkpoint(step_of(path), path)

    def _applied(self, digest: bytes) -> None:
        self.perform(self._coordinator.applied(digest, self._shell.now()))

    def _send(self, peer: Peer, message: Message, parcel: Parcel | None = None) -> None:
        if peer in self._behind_weights:
            self._behind_weights[peer].append((message, parcel))
        else:
            self._shell.send(peer, message, parcel)

    def _parcel_of(self, message: Message) -> Parcel:
        """The parcel of a message; that of an Update was made for the journal."""
        if self._packed_update is not None and self._packed_update[0] is message:
            return self._packed_update[1]
        return pack(message)

    def _digest(self, wanted: tuple[Tensors, ...]) -> None:
        self._shell.work(
            lambda: self._trainer.parts.digests(wanted),
            lambda found: self.perform(self._coordinator.digested(*found, self._shell.now())),
        )

    def _send_weights(self, peer: Peer, encode: Callable[[], list[Outgoing]]) -> None:
        """Encodes weights as work, which takes long for a large model; the replica can't change meanwhile, since steps
        are work, too."""
        waiting: list[tuple[Message, Parcel | None]] = []
        self._behind_weights[peer] = waiting

        def send(messages: list[Outgoing]) -> None:
            if self._behind_weights.get(peer) is not waiting:
                return  # it parted meanwhile
            del self._behind_weights[peer]
            for message, parcel in (*messages, *waiting):
                self._shell.send(peer, message, parcel)

        self._shell.work(encode, send)
