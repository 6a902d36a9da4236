"""A worker, its clock, and a machine that computes when told to; every message passes the real connection."""

from typing import Any, TypeVar, final, get_args

import msgspec
import numpy as np

from fedlearn.client.performer import Computed
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
)
from fedlearn.coordination.work.worker import Worker
from fedlearn.es.optimizers import Adam
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.snapshot import Snapshot
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.es.update import Update
from fedlearn.net.memory import MemoryLink
from fedlearn.tasks.invitation import Invitation
from fedlearn.wire.messages import Assignment, DataBlock, Message, Start, Welcome
from fedlearn.wire.proof import Credentials
from tests.identities import ADA, NONCE

GROUP = 8
BINDING = bytes(32)
FIRST = 800
QUOTA = 4000
TIME_LEFT = 10.0
BLOCK = bytes(16)

WELCOME = Welcome("7", Invitation("kind", 3, {}, {}))
DATA = DataBlock(BLOCK, b"")

Kind = TypeVar("Kind")


def digest_of(step: int) -> bytes:
    return step.to_bytes(8, "little")


def snapshot(step: int) -> Snapshot:
    return Snapshot(step, digest_of(step), np.zeros(1, dtype=np.float32), {}, {})


def start(first_step: int, step: int) -> Start:
    return Start(digest_of(first_step), first_step, step, keeps_start=False)


def update(step: int) -> Update:
    no_utilities = np.zeros(0, dtype=np.int8)
    return Update(step, BLOCK, (), no_utilities, 1, GROUP, 0.1, Adam(0.01), False, 0.0, "zero", 0.0, 1.0)


def assignment(step: int, **changes: Any) -> Assignment:  # noqa: ANN401 (fields of Assignment)
    return msgspec.structs.replace(
        Assignment(step, BLOCK, Perturbation(0.1, 1), GROUP, FIRST, QUOTA, TIME_LEFT), **changes
    )


def of(kind: type[Kind], effects: list[ClientEffect]) -> list[Kind]:
    return [effect for effect in effects if isinstance(effect, kind)]


def replies(kind: type[Kind], effects: list[ClientEffect]) -> list[Kind]:
    return [reply.message for reply in of(Reply, effects) if isinstance(reply.message, kind)]


@final
class Scene:
    """Performs effects as a client does; checks that the worker gives one order at a time."""

    def __init__(self, credentials: Credentials = ADA, *, run: str = "") -> None:
        self.now = 50.0
        self.worker = Worker(name="Ada", threads=2, credentials=credentials, run=run)
        self.under_way: Compute | None = None
        self.variance_left: float | None = None
        self._link = MemoryLink(now=self.now)
        self.greeting = self._perform(self.worker.start(nonce=NONCE, binding=BINDING))

    def hear(self, *messages: Message) -> list[ClientEffect]:
        effects = []
        for message in messages:
            self._link.server.send(message)
            for arrived in self._link.to_client(self.now):
                effects += self._perform(self.worker.received(arrived, self.now))
        return effects

    def compute(self, seconds: float = 0.0) -> list[ClientEffect]:
        """What is under way ends after some time."""
        self.now += seconds
        done, self.under_way = self.under_way, None
        result: Computed = None
        match done:
            case Load(given):
                result = given.digest
            case Begin(start):
                result = digest_of(start.first_step)
            case Apply(taken):
                result = digest_of(taken.step + 1)
            case Evaluate(trials):
                losses = np.arange(trials.first_member, trials.first_member + trials.n_members, dtype=np.float32)
                result = TrialResults(losses, variance_left=self.variance_left)
            case Build() | StoreBlock():
                pass
            case None:
                raise AssertionError("nothing is under way")
        return self._perform(self.worker.computed(result, self.now))

    def compute_all(self) -> list[ClientEffect]:
        """All that is asked for is done at once."""
        effects = []
        while self.under_way is not None:
            effects += self.compute()
        return effects

    def stop(self) -> list[ClientEffect]:
        return self._perform(self.worker.stop("Ctrl-C"))

    def finish(self) -> list[ClientEffect]:
        return self._perform(self.worker.finish("Ctrl-C", self.now))

    def wake(self) -> list[ClientEffect]:
        return self._perform(self.worker.wake(self.now))

    def fail(self, reason: str) -> list[ClientEffect]:
        """What was under way can't be done."""
        self.under_way = None
        return self._perform(self.worker.fail(reason))

    @property
    def trials(self) -> Trials | None:
        """What is evaluated just now."""
        return self.under_way.trials if isinstance(self.under_way, Evaluate) else None

    def _perform(self, effects: list[ClientEffect]) -> list[ClientEffect]:
        for effect in effects:
            match effect:
                case Reply(message):
                    self._link.client.send(message)
                    self._link.to_server(self.now)
                case Notice() | Leave():
                    pass
                case compute:
                    assert isinstance(compute, get_args(Compute))
                    assert self.under_way is None, "computations are under way one at a time"
                    self.under_way = compute
        return effects


def measured(scene: Scene, members_per_s: float) -> None:
    """Lets the worker, which holds the weights of step 4, find out its speed, with a step that ends at once."""
    scene.hear(assignment(4))
    assert scene.trials is not None
    scene.hear(update(4))
    scene.compute(scene.trials.n_members / members_per_s)
    scene.compute()
