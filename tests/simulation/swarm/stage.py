"""A swarm on a run, with a scripted clock, and the digests of all its replicas as they come."""

from collections.abc import Callable, Iterator
from typing import Self, final

import pytest

from fedlearn.client.lending.budget import MemoryBudget
from fedlearn.client.performer import Computed
from fedlearn.coordination.effects import Compute, Evaluate
from fedlearn.runs.run import Run
from fedlearn.server.training.trainer import Trainer
from fedlearn.simulation.swarm import Participant, Swarm
from fedlearn.storage.journal.journal import read_journal
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.wire.encoding.codec import encode


@final
class Clock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@final
class Stage:
    """A swarm on a run, and the digest of each replica at each step that it was seen at."""

    def __init__(self, run: Run, task: NamedTask | None = None) -> None:
        self.run = run
        self.trainer, self.notices = Trainer.open(run)
        self.clock = Clock()
        self.swarm = Swarm(self.trainer, self.clock, task=task)
        self.participants: list[Participant] = []
        self._seen: dict[tuple[int, int], bytes] = {}

    def join(self, *, threads: int = 1, budget: MemoryBudget | None = None) -> Participant:
        name = f"volunteer {len(self.participants)}"
        self.participants.append(self.swarm.join(name, threads=threads, budget=budget))
        return self.participants[-1]

    def advance(self) -> bool:
        moved = self.swarm.advance()
        for number, participant in enumerate(self.participants):
            if (replica := participant.volunteer.replica) is not None:
                self._seen[number, replica.step] = replica.digest
        return moved

    def go_to(self, step: int) -> None:
        """Until the server's replica is at this step."""
        while self.trainer.replica.step < step:
            assert self.advance(), f"nothing moves at step {self.trainer.replica.step}"

    def settle(self) -> None:
        """Until nothing happens without time passing."""
        while self.advance():
            pass

    def train(self, *, volunteers: int = 1) -> Self:
        """To the end of the run."""
        for _ in range(volunteers):
            self.join()
        self.settle()
        assert self.swarm.reason is not None
        assert self.swarm.reason.endswith(("steps are done", "s of training are over"))
        self.close()
        return self

    def close(self) -> None:
        """The process ends, however it does."""
        self.trainer.close()

    def followed(self, participant: Participant) -> list[int]:
        """Steps at which the participant's replica was equal to the server's."""
        digests = {metrics.step + 1: bytes.fromhex(metrics.digest) for metrics in self.swarm.metrics}
        number = self.participants.index(participant)
        seen = {step: digest for (other, step), digest in self._seen.items() if other == number}
        return sorted(step for step, digest in seen.items() if digests.get(step) == digest)

    def drifted(self) -> list[tuple[int, int]]:
        """Number of the participant and step, wherever a replica was not equal to the server's."""
        digests = {metrics.step + 1: bytes.fromhex(metrics.digest) for metrics in self.swarm.metrics}
        return [key for key, digest in self._seen.items() if digests.get(key[1], digest) != digest]


StageOf = Callable[..., Stage]
"""Opens a stage on a run, of a task if need be; the test's end closes it."""


def slow_down(
    participant: Participant, clock: Clock, members_per_s: float, monkeypatch: pytest.MonkeyPatch
) -> list[int]:
    """Lets its trials take time; gives the sizes of its slices as they come."""
    slices = []
    perform = participant.volunteer.perform

    def perform_slowly(compute: Compute) -> Computed:
        if isinstance(compute, Evaluate):
            slices.append(compute.trials.n_members)
            clock.now += compute.trials.n_members / members_per_s
        return perform(compute)

    monkeypatch.setattr(participant.volunteer, "perform", perform_slowly)
    return slices


def journal_of(run: Run) -> list[bytes]:
    return [encode(update) for update in read_journal(run.folder.journal)]


@pytest.fixture
def stage_of() -> Iterator[StageOf]:
    """Stages that are closed in the end."""
    stages = []

    def opened(run: Run, task: NamedTask | None = None) -> Stage:
        stages.append(Stage(run, task))
        return stages[-1]

    yield opened
    for stage in stages:
        stage.close()
