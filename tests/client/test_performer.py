from collections import deque
from collections.abc import Callable
from typing import Any, final

import numpy as np
import pytest

from fedlearn.client.performer import Computed, VolunteerPerformer
from fedlearn.client.progress import Contribution
from fedlearn.coordination.effects import Compute, Evaluate, Leave, Load, Notice, Reply
from fedlearn.coordination.work.worker import Worker
from fedlearn.es.trials import TrialResults
from fedlearn.wire.messages import Activations, Credit, Farewell, Message, Neighbours, Pong, Ready, Result
from tests.coordination.work.scene import GROUP, WELCOME, assignment, digest_of, snapshot
from tests.identities import ADA, CHALLENGE, NONCE


@final
class Volunteer:
    """Computes at once, and has something to report."""

    replica = None
    lacks = ""
    unit = "tokens"

    def __init__(self) -> None:
        self.report = "members together\nas fast as one by one"

    def perform(self, compute: Compute) -> Computed:
        match compute:
            case Load(loaded):
                return loaded.digest
            case Evaluate(trials):
                return TrialResults(np.zeros(trials.n_members, dtype=np.float32))
            case _:
                return None


@final
class Shell:
    """Keeps what it is asked for; computes when told to."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.said: list[str] = []
        self.leave: Leave | None = None
        self._computes: deque[tuple[Callable[[], Computed], Callable[[Computed], None]]] = deque()

    def now(self) -> float:
        return 7.0

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def compute(self, task: Callable[[], Computed], then: Callable[[Computed], None]) -> None:
        self._computes.append((task, then))

    def say(self, text: str) -> None:
        self.said.append(text)

    def introduce(self, neighbours: Neighbours) -> None:
        raise AssertionError(f"{neighbours} were named to who does not listen")

    def forward(self, activations: Activations) -> None:
        raise AssertionError(f"members from {activations.first_member} on were to go to nobody")

    def left(self, leave: Leave) -> None:
        self.leave = leave

    def do_compute(self, n_times: int = 1) -> None:
        """What is asked for next."""
        for _ in range(n_times):
            task, then = self._computes.popleft()
            then(task())


@final
class Scene:
    """A performer between a worker and a shell."""

    def __init__(self) -> None:
        self.worker, self.shell = Worker(name="Ada", threads=1, credentials=ADA), Shell()
        self.volunteer = Volunteer()
        stand_in: Any = self.volunteer
        self.performer = VolunteerPerformer(self.worker, stand_in, self.shell)
        self.worker.start(nonce=NONCE)
        self.worker.received(CHALLENGE, 7.0)

    def hear(self, *messages: Message) -> None:
        for message in messages:
            self.performer.perform(self.worker.received(message, 7.0))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_the_worker_wants_is_done_in_order(scene: Scene) -> None:
    leave = Leave("because", is_welcome_back=True, is_refusal=False)
    scene.performer.perform([Notice("one"), Reply(Pong()), Notice("two"), leave])
    assert scene.shell.said == ["one", "two"]
    assert scene.shell.sent == [Pong()]
    assert scene.shell.leave is leave


def test_worker_hears_what_came_of_a_computation_and_goes_on(scene: Scene) -> None:
    scene.hear(WELCOME, snapshot(4), assignment(4, quota=2 * GROUP))
    assert scene.shell.sent == []
    scene.shell.do_compute(2)
    assert scene.shell.sent == [Ready(4, digest_of(4))]
    scene.shell.do_compute(2)
    assert [type(message) for message in scene.shell.sent] == [Ready, Result, Result]


def test_way_in_which_members_are_tried_is_said_once_it_is_known(scene: Scene) -> None:
    scene.hear(WELCOME, snapshot(4), assignment(4, quota=2 * GROUP))
    scene.shell.do_compute(2)
    assert scene.shell.said == []
    scene.shell.do_compute(2)
    assert scene.shell.said == ["members together", "as fast as one by one"]


@pytest.mark.parametrize(("later", "is_news"), [("8 at once: 1 s", True), ("one by one: 2.25 s", False)])
def test_another_way_is_said_and_other_figures_are_not(later: str, is_news: bool, scene: Scene) -> None:
    scene.volunteer.report = first = "one by one: 1.50e-05 s"
    scene.hear(WELCOME, snapshot(4), assignment(4, quota=2 * GROUP))
    scene.shell.do_compute(3)
    scene.volunteer.report = later
    scene.shell.do_compute()
    assert scene.shell.said == ([first, later] if is_news else [first])


def test_who_can_not_hold_the_whole_model_says_that_it_waits(scene: Scene) -> None:
    scene.volunteer.lacks = "memory: expected 2 MB"
    scene.hear(WELCOME)
    scene.shell.do_compute()
    assert scene.shell.said == ["waiting for a part of the model: memory: expected 2 MB"]


@pytest.mark.parametrize("answer", [Farewell("refused", "memory"), snapshot(4)], ids=["refused", "sent the whole"])
def test_who_is_given_no_part_does_not_say_that_it_waits(answer: Message, scene: Scene) -> None:
    scene.volunteer.lacks = "memory: expected 2 MB"
    scene.hear(WELCOME, answer)
    scene.shell.do_compute()
    assert scene.shell.said == []


def test_credit_is_said_with_the_progress(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Contribution, "performed", lambda *_, credited, **__: f"progress; {credited}")
    scene.hear(WELCOME, snapshot(4))
    scene.shell.do_compute(2)
    scene.hear(Credit(8, 64, 3, 0, 0), assignment(4, quota=GROUP))
    scene.shell.do_compute()
    said = "progress; its identity is credited with 8 members, 64 trial-tokens and 3 s in all"
    assert scene.shell.said[:3] == ["progress; ", "progress; ", said]
