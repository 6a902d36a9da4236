"""The volunteer's side of a run as a pure machine: messages, results and the time go in, effects come out.

Computations run one at a time, in the order in which the server's messages ask for them. Its work fills the time
between, in computations so short that a lost machine loses little and no Update waits long.
"""

from collections import deque
from typing import final

import msgspec

from fedlearn.coordination.effects import (
    Apply,
    Begin,
    Build,
    ClientEffect,
    Compute,
    Evaluate,
    Leave,
    Load,
    Notice,
    Reply,
    StoreBlock,
    TakeSeat,
)
from fedlearn.coordination.people.roster import Held
from fedlearn.coordination.work.slices import LeaseSlices
from fedlearn.coordination.work.stage import CrewStage
from fedlearn.coordination.work.states import WorkerState, state_after
from fedlearn.coordination.work.work import LeasedWork, LineEvent
from fedlearn.es.snapshot import Snapshot
from fedlearn.es.trials import TrialResults
from fedlearn.es.update import Update
from fedlearn.tasks.parts.computation import Pass, Passed
from fedlearn.wire.messages import (
    MAX_REASON_LENGTH,
    PROTOCOL_VERSION,
    Challenge,
    Credit,
    DataBlock,
    Farewell,
    Goodbye,
    Hello,
    Message,
    Ready,
    Resync,
    Seat,
    Start,
    Welcome,
)
from fedlearn.wire.proof import Credentials, prove

_OBJECT_BYTES = 1024
"""Bytes of an order without its arrays, and of eight spans."""


@final
class Worker:
    """One volunteer's part of a run, from Hello to the parting word; `run` is the wanted one, empty: any."""

    def __init__(
        self, *, name: str, threads: int, credentials: Credentials, run: str = "", memory_bytes: int = 0
    ) -> None:
        """`memory_bytes` is the memory that this machine lends; 0: enough for any whole replica."""
        self._name = name
        self._threads = threads
        self._credentials = credentials
        self._run = run
        self._memory_bytes = memory_bytes
        self._work: LeasedWork = LeaseSlices()
        self._state = WorkerState.SILENT
        self._listens_at = 0
        self._hello: Hello | None = None
        self._held: Held | None = None
        self._binding = b""
        self._waiting: deque[Compute] = deque()
        self._under_way: tuple[Compute, float] | None = None
        self._step = -1
        self._digest = b""
        self._ready_at = -1
        """The step at which this machine is to be ready, as the server last said."""
        self._farewell: Farewell | None = None
        self._leaving: str | None = None
        self._rests_until = 0.0
        self._bytes_waiting = 0
        self.n_steps = 0
        """Steps taken since this machine joined."""
        self.credit: Credit | None = None
        """The credit of this identity, as the server last reported it."""

    @property
    def bytes_waiting(self) -> int:
        """Bytes of orders of the server that this machine has not carried out."""
        return self._bytes_waiting

    @property
    def activations_waiting_bytes(self) -> int:
        """Bytes of activations from the previous seat that this machine has not computed."""
        return self._work.bytes_waiting

    @property
    def is_idle(self) -> bool:
        """Whether the conversation goes on, and nothing is computed before another message comes."""
        return self._state is not WorkerState.OVER and self._under_way is None

    def start(
        self, *, nonce: bytes, binding: bytes = b"", held: Held | None = None, listens_at: int = 0
    ) -> list[ClientEffect]:
        """Begins the conversation; `nonce` is random, and `binding` is that of the server's certificate.

        `held` names the weights that this machine has kept from an earlier conversation, `listens_at` the port on which
        a neighbour in a crew may call.
        """
        self._held, self._listens_at = held, listens_at
        public_key = self._credentials.identity.public_key
        self._hello = Hello(PROTOCOL_VERSION, self._name, self._threads, public_key, nonce)
        self._binding = binding
        return [self._say(self._hello)]

    def received(self, message: Message, now: float) -> list[ClientEffect]:
        """Takes a message that the connection found legal; ignores it after a parting word."""
        if self._state is WorkerState.OVER:
            return []
        self._state = state_after(self._state, message)
        match message:
            case Challenge():
                return self._prove(message)
            case Welcome():
                if self._run not in ("", message.run):
                    return self.fail(
                        f"run: expected {self._run}, the server trains {message.run}; join with the line that it prints"
                    )
                return self._queue(Build(message), now)
            case Seat():
                self._work = CrewStage(message, is_direct=self._listens_at > 0)
                part = f"part {message.place + 1} of {len(message.cuts) + 1} of the model, in crew {message.crew}"
                return [Notice(f"this machine holds {part}"), *self._queue(TakeSeat(message), now)]
            case DataBlock():
                return self._queue(StoreBlock(message), now)
            case Snapshot():
                self._ready_at = message.step
                return self._queue(Load(message), now)
            case Start():
                self._ready_at = message.step
                return self._queue(Begin(message), now)
            case Update():
                self._work.give_up()
                return self._queue(Apply(message), now)
            case Resync():
                self._work.give_up()
                return [Notice(f"the server resynchronises this machine: {message.reason}")]
            case Credit():
                self.credit = message
                return []
            case Farewell():
                self._work.give_up()
                self._farewell = message
                return self._proceed(now)
            case _:
                return [*self._work.take(message, now), *self._proceed(now)]

    def neighbour(self, event: LineEvent, now: float) -> list[ClientEffect]:
        """Takes an event of the connections to neighbours in a crew."""
        if self._state is WorkerState.OVER:
            return []
        return [*self._work.take(event, now), *self._proceed(now)]

    def _prove(self, challenge: Challenge) -> list[ClientEffect]:
        assert self._hello is not None, "challenged before Hello"
        if challenge.needs_token and not self._credentials.token:
            return self.fail(
                "token: the server asks for one, none was given; ask its owner, and name the token's file with --token"
            )
        proof = prove(self._credentials, self._hello, challenge, self._binding)
        proof = msgspec.structs.replace(proof, memory_bytes=self._memory_bytes, listens_at=self._listens_at)
        if self._held is not None:
            proof = msgspec.structs.replace(proof, held_step=self._held.step, held_digest=self._held.digest)
        return [self._say(proof)]

    def computed(self, result: bytes | TrialResults | Passed | None, now: float) -> list[ClientEffect]:
        """Takes the result of the computation under way: a digest for Load, Begin and Apply, losses for Evaluate."""
        assert self._under_way is not None, "computed without a computation under way"
        (compute, started), self._under_way = self._under_way, None
        if self._state is WorkerState.OVER:
            return []
        effects: list[ClientEffect] = []
        match compute:
            case Load(snapshot):
                effects += self._hold(snapshot.step, result)
            case Begin(start):
                effects += self._hold(start.first_step, result)
            case Apply(update):
                self.n_steps += 1
                effects += self._hold(update.step + 1, result)
            case Evaluate() | Pass():
                assert isinstance(result, TrialResults | Passed)
                effects += self._work.done(compute, result, self._digest, started=started, now=now)
        return [*effects, *self._proceed(now)]

    def _hold(self, step: int, digest: bytes | TrialResults | Passed | None) -> list[ClientEffect]:
        """Notes the step before which the replica stands, and says Ready once that is the step that the server asked
        for."""
        assert isinstance(digest, bytes)
        self._step, self._digest = step, digest
        is_ready = self._state is WorkerState.SYNCING and step == self._ready_at
        return [self._say(Ready(step, digest))] if is_ready else []

    def _say(self, message: Message) -> Reply:
        self._state = state_after(self._state, message)
        return Reply(message)

    def rest(self, until: float) -> None:
        """Begins no trials before this time; then `wake` is to be called."""
        self._rests_until = until

    def wake(self, now: float) -> list[ClientEffect]:
        """Goes on, if the rest is over."""
        return [] if self._state is WorkerState.OVER else self._proceed(now)

    def finish(self, reason: str, now: float) -> list[ClientEffect]:
        """Sends the results under way and then parts, as the person wants to leave; `stop` does not wait for them."""
        self._leaving = reason
        return [] if self._state is WorkerState.OVER else self._proceed(now)

    def stop(self, reason: str) -> list[ClientEffect]:
        """Parts at once, as the person at this machine wants to leave."""
        return self._part(reason, is_refusal=False)

    def fail(self, reason: str, *, is_welcome_back: bool = False) -> list[ClientEffect]:
        """Parts because this machine cannot do what the run asks for; tells the server the reason, as the fault may be
        there."""
        return self._part(reason, is_refusal=True, is_welcome_back=is_welcome_back)

    def _part(self, reason: str, *, is_refusal: bool, is_welcome_back: bool = False) -> list[ClientEffect]:
        if self._state is WorkerState.OVER:
            return []
        said = "".join(c if c.isprintable() else " " for c in reason)[:MAX_REASON_LENGTH]
        goodbye: list[ClientEffect] = [Reply(Goodbye(said))] if self._state is not WorkerState.DISMISSED else []
        return [*goodbye, *self._leave(reason, is_welcome_back=is_welcome_back, is_refusal=is_refusal)]

    def _leave(self, reason: str, *, is_welcome_back: bool, is_refusal: bool) -> list[ClientEffect]:
        self._state = WorkerState.OVER
        return [Leave(reason, is_welcome_back=is_welcome_back, is_refusal=is_refusal)]

    def _queue(self, compute: Compute, now: float) -> list[ClientEffect]:
        self._waiting.append(compute)
        self._bytes_waiting += _bytes_of(compute)
        return self._proceed(now)

    def _proceed(self, now: float) -> list[ClientEffect]:
        """Starts the next computation, if none is under way."""
        if self._under_way is not None:
            return []
        if self._leaving is not None:
            return self.stop(self._leaving)
        if self._waiting:
            compute: Compute | None = self._waiting.popleft()
            self._bytes_waiting -= _bytes_of(compute)
        else:
            compute = self._work.next(self._step, now) if now >= self._rests_until else None
        if compute is None and (farewell := self._farewell) is not None:
            # The last steps are taken before parting, so that a volunteer that leaves holds the final weights.
            kind = farewell.kind
            return self._leave(farewell.reason, is_welcome_back=kind == "try_again", is_refusal=kind == "refused")
        if compute is None:
            return []
        self._under_way = (compute, now)
        return [compute]


def _bytes_of(compute: Compute | None) -> int:
    """Bytes of an order that waits in memory until it is carried out."""
    match compute:
        case Build(welcome):
            return _OBJECT_BYTES + len(welcome.invitation.attachment)
        case StoreBlock(block):
            return _OBJECT_BYTES + len(block.columns)
        case Load(snapshot):
            return _OBJECT_BYTES + snapshot.weights.nbytes * (1 + len(snapshot.slots) + snapshot.is_start)
        case Apply(update):
            n_bytes = update.utilities.nbytes + update.estimate.n_bytes
            return _OBJECT_BYTES * (1 + len(update.spans) // 8) + n_bytes
        case _:
            return _OBJECT_BYTES
