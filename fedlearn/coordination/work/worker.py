"""The volunteer's side of a run as a pure machine: messages, results and the time go in, effects come out.

Computations run one at a time, in the order in which the server's messages ask for them. Trials fill the time between,
in slices so short that a lost machine loses little and no Update waits long.
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
    Pass,
    Reply,
    StoreBlock,
    TakeSeat,
)
from fedlearn.coordination.people.roster import Held
from fedlearn.coordination.work.pipeline import Pipeline
from fedlearn.coordination.work.route import ActivationRoute, unreachable
from fedlearn.es.snapshot import Snapshot
from fedlearn.es.sums.exchange import SUM_SLICE_S
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.es.update import Update
from fedlearn.wire.messages import (
    MAX_REASON_LENGTH,
    PROTOCOL_VERSION,
    Activations,
    Assignment,
    Challenge,
    Credit,
    DataBlock,
    Farewell,
    Goodbye,
    Hello,
    Message,
    Neighbours,
    Ready,
    Result,
    Resync,
    Seat,
    Start,
    Taken,
    Welcome,
)
from fedlearn.wire.proof import Credentials, prove

SLICE_S = 0.25
"""Seconds of trials between two Results: the longest that an Update waits, and the most that a killed client loses."""

MAX_SLICE_MEMBERS = 2**20
"""The most losses in one Result."""

_FIRST_SLICE_GROUPS = 1
"""Groups of the very first slice, when this machine's speed is not known: one may take minutes."""

_OBJECT_BYTES = 1024
"""Bytes of an order without its arrays, and of eight spans."""

_SAFETY = 0.9
"""Share of the time left that a slice may take: its Result must arrive before the step closes."""


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
        self._pipeline: Pipeline | None = None
        """The pipeline of this machine's seat; None where it has none."""
        self._way = ActivationRoute()
        self._listens_at = 0
        self._hello: Hello | None = None
        self._held: Held | None = None
        self._binding = b""
        self._waiting: deque[Compute] = deque()
        self._under_way: tuple[Compute, float] | None = None
        self._assignment: Assignment | None = None
        self._assigned_at = self._deadline = 0.0
        self._n_done = 0
        self._members_per_s: float | None = None
        self._step = -1
        self._digest = b""
        self._ready_at: int | None = None
        self._parting: Farewell | None = None
        self._is_over = False
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
        return self._pipeline.bytes_waiting if self._pipeline is not None else 0

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
        return [Reply(self._hello)]

    def received(self, message: Message, now: float) -> list[ClientEffect]:
        """Takes a message that the connection found legal; ignores it after a parting word."""
        if self._is_over:
            return []
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
                self._pipeline, self._way = Pipeline(message), ActivationRoute()
                part = f"part {message.place + 1} of {len(message.cuts) + 1} of the model, in crew {message.crew}"
                return [Notice(f"this machine holds {part}"), *self._queue(TakeSeat(message), now)]
            case Neighbours() if self._pipeline is not None and self._listens_at:
                self._pipeline.hear(message.before)
                return self._way.name(message)
            case DataBlock():
                return self._queue(StoreBlock(message), now)
            case Snapshot():
                self._ready_at = message.step
                return self._queue(Load(message), now)
            case Start():
                self._ready_at = message.step
                return self._queue(Begin(message), now)
            case Update():
                self._give_up()
                return self._queue(Apply(message), now)
            case Assignment():
                return [*self._assign(message, now), *self._proceed(now)]
            case Activations() if self._pipeline is not None:
                self._pipeline.received(message)
                return self._proceed(now)
            case Taken() if self._pipeline is not None:
                self._pipeline.taken(message)
                return self._proceed(now)
            case Resync():
                self._give_up()
                return [Notice(f"the server resynchronises this machine: {message.reason}")]
            case Credit():
                self.credit = message
                return []
            case Farewell():
                self._give_up()
                self._parting = message
                return self._proceed(now)
            case _:
                return []

    def linked(self) -> list[ClientEffect]:
        """Takes note that the next seat is connected, and has proven that it is the one that the server named."""
        return self._way.opened()

    def unlinked(self, reason: str, *, is_next: bool) -> list[ClientEffect]:
        """Takes note that a connection to a neighbour can't be used, or not any more."""
        if self._is_over or self._pipeline is None:
            return []
        if is_next:
            return self._way.lost(reason)
        return self._turn_away(reason) if self._pipeline.hears else []

    def heard(self, activations: Activations, now: float) -> list[ClientEffect]:
        """Takes activations that came straight from the previous seat."""
        if self._is_over or self._pipeline is None:
            return []
        misfit = self._pipeline.heard(activations)
        return [*(self._turn_away(misfit) if misfit else []), *self._proceed(now)]

    def _turn_away(self, reason: str) -> list[ClientEffect]:
        """Stops hearing the previous seat directly: the server looks at what it sends."""
        assert self._pipeline is not None, "neighbours without a seat"
        self._pipeline.hear(None)
        return [unreachable(reason, is_next=False)]

    def _assign(self, assignment: Assignment, now: float) -> list[ClientEffect]:
        if self._pipeline is not None:
            misfit = self._pipeline.assign(assignment, now)
            return self._turn_away(misfit) if misfit else []
        self._assignment = assignment
        self._assigned_at = now
        self._deadline = now + assignment.time_left_s
        self._n_done = 0
        return []

    def _give_up(self) -> None:
        """Drops the work of the lease."""
        self._assignment = None
        if self._pipeline is not None:
            self._pipeline.clear()

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
        return [Reply(proof)]

    def computed(self, result: bytes | TrialResults | None, now: float) -> list[ClientEffect]:
        """Takes the result of the computation under way: a digest for Load, Begin and Apply, losses for Evaluate."""
        assert self._under_way is not None, "computed without a computation under way"
        (compute, started), self._under_way = self._under_way, None
        if self._is_over:
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
            case Evaluate():
                assert isinstance(result, TrialResults)
                effects += self._report(compute.trials, result, started, now)
            case Pass() if self._pipeline is not None:
                assert result is not None
                for said in self._pipeline.passed(compute, result, self._digest, now):
                    effects += self._way.say(said)
        return [*effects, *self._proceed(now)]

    def _hold(self, step: int, digest: bytes | TrialResults | None) -> list[ClientEffect]:
        """Notes the step before which the replica stands, and says Ready once that is the step that the server asked
        for."""
        assert isinstance(digest, bytes)
        self._step, self._digest = step, digest
        if self._ready_at != step:
            return []
        self._ready_at = None
        return [Reply(Ready(step, digest))] if self._parting is None else []

    def rest(self, until: float) -> None:
        """Begins no trials before this time; then `wake` is to be called."""
        self._rests_until = until

    def wake(self, now: float) -> list[ClientEffect]:
        """Goes on, if the rest is over."""
        return [] if self._is_over else self._proceed(now)

    def finish(self, reason: str, now: float) -> list[ClientEffect]:
        """Sends the results under way and then parts, as the person wants to leave; `stop` does not wait for them."""
        self._leaving = reason
        return [] if self._is_over else self._proceed(now)

    def stop(self, reason: str) -> list[ClientEffect]:
        """Parts at once, as the person at this machine wants to leave."""
        return self._part(reason, is_refusal=False)

    def fail(self, reason: str, *, is_welcome_back: bool = False) -> list[ClientEffect]:
        """Parts because this machine cannot do what the run asks for; tells the server the reason, as the fault may be
        there."""
        return self._part(reason, is_refusal=True, is_welcome_back=is_welcome_back)

    def _part(self, reason: str, *, is_refusal: bool, is_welcome_back: bool = False) -> list[ClientEffect]:
        if self._is_over:
            return []
        self._is_over = True
        said = "".join(c if c.isprintable() else " " for c in reason)[:MAX_REASON_LENGTH]
        goodbye: list[ClientEffect] = [Reply(Goodbye(said))] if self._parting is None else []
        return [*goodbye, Leave(reason, is_welcome_back=is_welcome_back, is_refusal=is_refusal)]

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
            compute = self._next_slice(now)
        if compute is None and self._parting is not None:
            # The last steps are taken before parting, so that a volunteer that leaves holds the final weights.
            self._is_over = True
            return [_leave(self._parting)]
        if compute is None:
            return []
        self._under_way = (compute, now)
        return [compute]

    def _next_slice(self, now: float) -> Evaluate | Pass | None:
        if self._pipeline is not None:
            return self._pipeline.next(self._step, now) if now >= self._rests_until else None
        assignment = self._assignment
        if assignment is None or assignment.step != self._step or now < self._rests_until:
            return None
        left = assignment.quota - self._n_done
        time_left_s = _SAFETY * (self._deadline - now)
        if left <= 0 or (time_left_s <= 0.0 and self._n_done > 0):
            return None
        group_size = assignment.group_size
        n_groups = _FIRST_SLICE_GROUPS
        if self._members_per_s is not None:
            is_summed = assignment.shaping is not None or assignment.perturbation.is_summed
            slice_s = SUM_SLICE_S if is_summed else SLICE_S
            n_groups = int(self._members_per_s * max(min(slice_s, time_left_s), 0.0) / group_size)
            if n_groups == 0 and self._members_per_s * time_left_s < group_size and self._n_done > 0:
                return None  # the next group would come too late
        trials = Trials(
            step=assignment.step,
            perturbation=assignment.perturbation,
            group_size=group_size,
            first_member=assignment.first_member + self._n_done,
            n_members=min(max(min(n_groups, MAX_SLICE_MEMBERS // group_size), 1) * group_size, left),
            shaping=assignment.shaping,
        )
        return Evaluate(trials, assignment.block)

    def _report(self, trials: Trials, results: TrialResults, started: float, now: float) -> list[ClientEffect]:
        self._members_per_s = trials.n_members / max(now - started, 1e-6)
        assignment = self._assignment
        expected = None if assignment is None else assignment.first_member + self._n_done
        if assignment is None or trials.step != assignment.step or trials.first_member != expected:
            return []  # the step closed meanwhile
        self._n_done += trials.n_members
        busy_s = now - self._assigned_at
        result = Result(
            trials.step,
            trials.first_member,
            results.losses,
            self._digest,
            results.estimate,
            busy_s,
            results.variance_left,
        )
        return [Reply(result)]


def _bytes_of(compute: Compute | None) -> int:
    """Bytes of an order that waits in memory until it is carried out."""
    match compute:
        case Build(welcome):
            return _OBJECT_BYTES + len(welcome.invitation.attachment)
        case StoreBlock(block):
            return _OBJECT_BYTES + len(block.columns)
        case Load(snapshot):
            return _OBJECT_BYTES + snapshot.weights.nbytes * (1 + len(snapshot.slots))
        case Apply(update):
            n_bytes = update.utilities.nbytes + update.estimate.n_bytes
            return _OBJECT_BYTES * (1 + len(update.spans) // 8) + n_bytes
        case _:
            return _OBJECT_BYTES


def _leave(farewell: Farewell) -> Leave:
    return Leave(
        farewell.reason,
        is_welcome_back=farewell.kind == "try_again",
        is_refusal=farewell.kind == "refused",
    )
