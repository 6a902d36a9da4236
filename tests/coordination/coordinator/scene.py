"""A coordinator with its clock and the peers that follow the run; every message passes the real connection."""

from collections import deque
from collections.abc import Iterable
from typing import Any, TypeVar, final

import msgspec
import numpy as np

from fedlearn.coordination.audits.audit import Claim, compare
from fedlearn.coordination.audits.auditor import Lottery
from fedlearn.coordination.coordinator import Coordinator
from fedlearn.coordination.effects import (
    AppendToJournal,
    ApplyUpdate,
    Broadcast,
    Dismiss,
    Recompute,
    Send,
    SendBlock,
    SendWeights,
    ServerEffect,
)
from fedlearn.coordination.operator import RunOperator
from fedlearn.coordination.people.authentication import AuthenticationRules
from fedlearn.coordination.people.reputation import PROOF_GROUPS, Reputation
from fedlearn.coordination.people.roster import KEPT_BLOCKS, Held
from fedlearn.coordination.steps.plan import RunPlan
from fedlearn.coordination.steps.step_source import OwnSteps
from fedlearn.es.layout import Float32Array, ParameterLayout, TensorSpec
from fedlearn.es.optimizers import Adam
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.snapshot import Snapshot
from fedlearn.es.strategy import Strategy
from fedlearn.es.trials import TrialResults
from fedlearn.es.update import Update
from fedlearn.net.memory import MemoryLink
from fedlearn.tasks.blocks import NO_BLOCK
from fedlearn.tasks.invitation import Invitation
from fedlearn.wire.messages import (
    Assignment,
    Challenge,
    DataBlock,
    Goodbye,
    Message,
    Ready,
    Result,
    Resync,
    Start,
)
from fedlearn.wire.proof import Credentials
from fedlearn.wire.states import State
from tests.identities import NONCE, hello_of, named, proof_of

GROUP = 4
LIMIT = 64
HALF = LIMIT // 2
TIME_PER_STEP = 10.0
CHECKPOINT_TIME = 60.0
BLOCKS = tuple(bytes([number]) * 16 for number in range(3))
WRONG_DIGEST = b"otherwis"

STRATEGY = Strategy(
    perturbation=Perturbation(sigma=0.1, rank=1),
    group_size=GROUP,
    population_limit=LIMIT,
    optimizer=Adam(0.01),
    fitness_shaping="normalized",
)
PLAN = RunPlan(
    run="7",
    invitation=Invitation("kind", 3, {"width": 5}, {"source": "abc"}),
    layout=ParameterLayout((TensorSpec("vector", (3,)),)),
    blocks=BLOCKS,
    steps_per_block=0,
    time_per_step=TIME_PER_STEP,
    checkpoint_time=CHECKPOINT_TIME,
    steps=0,
)

Kind = TypeVar("Kind")


def digest_of(step: int) -> bytes:
    """What the server's replica has before a step."""
    return step.to_bytes(8, "little")


def of(kind: type[Kind], effects: Iterable[object]) -> list[Kind]:
    return [effect for effect in effects if isinstance(effect, kind)]


def sent(kind: type[Kind], effects: Iterable[ServerEffect], peer: int | None = None) -> list[Kind]:
    """Messages of a kind, to one peer or to all."""
    messages: list[Message] = []
    for effect in effects:
        match effect:
            case Send(to, message):
                messages += [message] * (peer in (None, to))
            case Broadcast(peers, message):
                messages += [message] * (len(peers) if peer is None else peers.count(peer))
            case _:
                pass
    return of(kind, messages)


def parted(effects: Iterable[ServerEffect]) -> dict[int, tuple[str, str]]:
    return {part.peer: (part.farewell.kind, part.farewell.reason) for part in of(Dismiss, effects)}


def identity_of(peer: int) -> str:
    """Of a volunteer that is called by the number of its connection."""
    return named(f"volunteer {peer}").identity.public_key.hex()


@final
class Scene:
    """Performs effects as a server does; checks what must hold whatever happens. Those of `proven` are trusted."""

    def __init__(
        self,
        *,
        step: int = 0,
        strategy: Strategy = STRATEGY,
        replays: bool = False,
        lottery: Lottery | None = None,
        rules: AuthenticationRules | None = None,
        proven: Iterable[int] = (),
        **plan: Any,  # noqa: ANN401 (fields of Plan)
    ) -> None:
        self.now = 1000.0
        self.step = step
        """Of the server's replica, or where it comes with the Update under way."""
        self.effects: list[ServerEffect] = []
        """All that the coordinator wanted done, in order."""
        self.assignments: dict[int, Assignment] = {}
        self.journal: list[Update] = []
        self.claims: list[Claim] = []
        """That the server was to look at itself, in order."""
        self.is_applying = False
        self.followers: dict[int, int] = {}
        """Step of the replica of each peer that was sent the weights."""
        self.synchronised: dict[int, int] = {}
        """Step of the weights that each was sent last."""
        self.reported: dict[tuple[int, int], set[int]] = {}
        """Members by step and peer whose losses may count."""
        self._replays = replays
        """Whether weights are sent as Start and Updates wherever they may be."""
        self._blocks: dict[int, deque[bytes]] = {}
        self._n_sent: dict[int, int] = {}
        self._links: dict[int, MemoryLink] = {}
        plan_of_it = msgspec.structs.replace(PLAN, **plan)
        steps = OwnSteps(plan_of_it, strategy)
        self.coordinator = Coordinator(
            plan_of_it,
            steps,
            step=step,
            last=None,
            digest=digest_of(step),
            now=self.now,
            reputations=[Reputation(identity_of(peer), n_agreed=PROOF_GROUPS) for peer in proven],
            lottery=lottery,
            rules=rules,
        )
        self.operator = RunOperator(self.coordinator, steps)

    # ---- what happens; each gives the effects

    def connect(self, peer: int) -> list[ServerEffect]:
        self._links[peer] = MemoryLink(now=self.now)
        self._blocks[peer] = deque([NO_BLOCK], maxlen=KEPT_BLOCKS)
        return self._perform(self.coordinator.connected(peer, self.now, nonce=NONCE))

    def say(self, peer: int, *messages: Message) -> list[ServerEffect]:
        effects = []
        for message in messages:
            link = self._links[peer]
            link.client.send(message)
            for arrived in link.to_server(self.now):
                effects += self._perform(self.coordinator.received(peer, arrived, self.now))
        return effects

    def greet(
        self,
        peer: int,
        name: str | None = None,
        credentials: Credentials | None = None,
        held: Held | None = None,
        memory_bytes: int = 0,
    ) -> list[ServerEffect]:
        """A volunteer is let in, by the identity of its name; what is said on the way to that is left out."""
        called = f"volunteer {peer}" if name is None else name
        credentials = credentials or named(called or f"{peer}")
        hello = hello_of(credentials, name=called)
        self.connect(peer)
        (challenge,) = sent(Challenge, self.say(peer, hello))
        proof = msgspec.structs.replace(proof_of(credentials, hello, challenge), memory_bytes=memory_bytes)
        if held is not None:
            proof = msgspec.structs.replace(proof, held_step=held.step, held_digest=held.digest)
        return self.say(peer, proof)

    def join(self, peer: int) -> list[ServerEffect]:
        return [*self.greet(peer), *self.say(peer, Ready(self.step, digest_of(self.step)))]

    def report(self, peer: int, count: int | None = None, **changes: Any) -> list[ServerEffect]:  # noqa: ANN401
        """The next `count` losses of the peer's lease, all that remain by default."""
        assignment = self.assignments[peer]
        done = self._n_sent[peer]
        first = assignment.first_member + done
        count = assignment.quota - done if count is None else count
        self._n_sent[peer] = done + count
        if changes.get("digest", digest_of(assignment.step)) == digest_of(assignment.step):
            self.reported.setdefault((assignment.step, peer), set()).update(range(first, first + count))
        losses = np.arange(first, first + count, dtype=np.float32)
        result = Result(assignment.step, first, losses, digest_of(assignment.step))
        return self.say(peer, msgspec.structs.replace(result, **changes))

    def drift(self, peer: int) -> list[ServerEffect]:
        """A Result with another digest, and Ready after the weights that follow."""
        effects = self.report(peer, GROUP, digest=WRONG_DIGEST)
        if not of(Dismiss, effects):
            self.say(peer, Ready(self.step, digest_of(self.step)))
        return effects

    def drop(self, peer: int) -> list[ServerEffect]:
        self.followers.pop(peer, None)
        return self._perform(self.coordinator.disconnected(peer, "the line broke", self.now))

    def fall_behind(self, peer: int) -> list[ServerEffect]:
        return self._perform(self.coordinator.fell_behind(peer, self.now))

    def leave(self, peer: int) -> list[ServerEffect]:
        self.followers.pop(peer, None)
        return self.say(peer, Goodbye("the line broke"))

    def applied(self) -> list[ServerEffect]:
        """The server's replica takes the Update under way."""
        self.is_applying = False
        return self._perform(self.coordinator.applied(digest_of(self.step), self.now))

    def wait(self, seconds: float) -> list[ServerEffect]:
        self.now += seconds
        return self._perform(self.coordinator.tick(self.now))

    def recomputed(self, claim: Claim, *losses: Float32Array) -> list[ServerEffect]:
        """The server found these losses itself, one time after another."""
        results = iter([TrialResults(found, claim.estimate) for found in losses])
        found = compare(claim, lambda: next(results), PLAN.layout)
        return self._perform(self.coordinator.recomputed(claim, *found, self.now))

    def allow(self, *peers: int) -> list[ServerEffect]:
        """The owner lists the volunteers of these numbers."""
        listed = frozenset(named(f"volunteer {peer}").identity.public_key.hex() for peer in peers)
        return self._perform(self.coordinator.allow(listed, self.now))

    def stop(self) -> list[ServerEffect]:
        return self._perform(self.coordinator.stop("Ctrl-C"))

    def pause(self) -> list[ServerEffect]:
        return self._perform(self.operator.pause("Ada"))

    def go_on(self) -> list[ServerEffect]:
        return self._perform(self.operator.go_on("Ada", self.now))

    def send_away(self, who: str) -> list[ServerEffect]:
        return self._perform(self.operator.send_away(who, "Ada", self.now))

    # ---- how things stand

    def state_of(self, peer: int) -> State:
        """Where the conversation stands for the peer."""
        return self._links[peer].client.state

    @property
    def n_peers(self) -> int:
        """Peers that ever connected."""
        return len(self._links)

    def remaining(self, peer: int) -> int:
        """Members of its lease that the peer has not reported."""
        return self.assignments[peer].quota - self._n_sent[peer] if peer in self.assignments else 0

    # ---- what the coordinator wants done

    def _perform(self, effects: list[ServerEffect]) -> list[ServerEffect]:
        for effect in effects:
            self.effects.append(effect)
            match effect:
                case Send(peer, message):
                    self._send(peer, message)
                case Broadcast(peers, message):
                    for peer in peers:
                        self._send(peer, message)
                case SendWeights(peer, may_replay):
                    self._synchronise(peer, is_replay=may_replay and self._replays)
                case SendBlock(peer, block):
                    assert block != NO_BLOCK
                    self._send(peer, DataBlock(block, b""))
                case Dismiss(peer, farewell):
                    self._send(peer, farewell)
                    self.followers.pop(peer, None)
                    self.reported.pop((self.step, peer), None)
                case AppendToJournal(update):
                    assert update.step == self.step
                    self.journal.append(update)
                case Recompute(claim):
                    assert claim.trials.step == self.step
                    assert not self.is_applying
                    self.claims.append(claim)
                case ApplyUpdate(update):
                    assert not self.is_applying
                    self.is_applying = True
                    self.step = update.step + 1
                case _:
                    pass
        return effects

    def _synchronise(self, peer: int, *, is_replay: bool) -> None:
        """The weights of the server's replica, which stands before `step` now; the connections allow what comes."""
        assert not self.is_applying
        messages: list[Message] = [Snapshot(self.step, digest_of(self.step), np.zeros(3, np.float32), {}, {})]
        if is_replay:
            begun_at = self.step - len(self.journal)
            messages = [Start(digest_of(begun_at), begun_at, self.step, keeps_start=False), *self.journal]
        for message in messages:
            self._carry(peer, message)
        self.followers[peer] = self.synchronised[peer] = self.step

    def _send(self, peer: int, message: Message) -> None:
        """Carries a message over, and takes what must hold for whoever follows the run."""
        self._carry(peer, message)
        match message:
            case DataBlock():
                self._blocks[peer].append(message.block)
            case Resync() if "digest" in message.reason:
                self.reported.pop((self.step, peer), None)
            case Update():
                assert message is self.journal[-1], "an Update is sent once it is in the journal"
                assert message.block in self._blocks[peer]
                assert message.step == self.followers[peer]
                self.followers[peer] += 1
            case Assignment():
                assert message.block in self._blocks[peer]
                assert message.step == self.followers[peer]
                self.assignments[peer] = message
                self._n_sent[peer] = 0
            case _:
                pass

    def _carry(self, peer: int, message: Message) -> None:
        self._links[peer].server.send(message)
        self._links[peer].to_client(self.now)
