"""The worker against a scripted clock; every message passes the real connection of its server."""

from typing import Any, Literal, TypeVar, final

import msgspec
import numpy as np
import pytest

from fedlearn.coordination.effects import (
    Apply,
    Build,
    ClientEffect,
    Evaluate,
    Leave,
    Load,
    Notice,
    Reply,
    StoreBlock,
)
from fedlearn.coordination.worker import MAX_SLICE_MEMBERS, SLICE_S, Worker
from fedlearn.es.estimate import NO_ESTIMATE
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.update import Update
from fedlearn.net.memory import MemoryLink
from fedlearn.objectives.base import TrialResults, Trials
from fedlearn.wire.codec import encode
from fedlearn.wire.limits import max_message_bytes
from fedlearn.wire.messages import (
    PROTOCOL_VERSION,
    Assignment,
    Farewell,
    Goodbye,
    Hello,
    Message,
    Ready,
    Result,
    Resync,
    Snapshot,
    TokenBlock,
    Welcome,
)

GROUP = 8
FIRST = 800
QUOTA = 4000
TIME_LEFT = 10.0
BLOCK = bytes(16)
NONE = np.zeros(1, dtype=np.float32)

WELCOME = Welcome("7", 3, {"architecture": "rnn"})
TOKENS = TokenBlock(BLOCK, np.zeros(1, dtype=np.uint16))

Kind = TypeVar("Kind")


def digest_of(step: int) -> bytes:
    return step.to_bytes(8, "little")


def snapshot(step: int) -> Snapshot:
    return Snapshot(step, digest_of(step), NONE, NONE, NONE, 1.0, 1.0)


def update(step: int) -> Update:
    no_utilities = np.zeros(0, dtype=np.int8)
    return Update(step, BLOCK, (), no_utilities, 1, GROUP, 0.1, "adam", 0.01, 0.9, 0.999, 1e-8, False, 0.0, 0.0, 1.0)


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
    """A worker, its clock, and a machine that computes when told to; checks that it gets one order at a time."""

    def __init__(self) -> None:
        self.now = 50.0
        self.worker = Worker(name="Ada", threads=2)
        self.under_way: Build | StoreBlock | Load | Apply | Evaluate | None = None
        self._link = MemoryLink(now=self.now)
        self.greeting = self._perform(self.worker.start())

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
        result: bytes | TrialResults | None = None
        match done:
            case Load(given):
                result = given.digest
            case Apply(taken):
                result = digest_of(taken.step + 1)
            case Evaluate(trials):
                losses = np.arange(trials.first_member, trials.first_member + trials.n_members, dtype=np.float32)
                result = TrialResults(losses, NO_ESTIMATE)
            case None:
                raise AssertionError("nothing is under way")
            case _:
                pass
        return self._perform(self.worker.computed(result, self.now))

    def stop(self) -> list[ClientEffect]:
        return self._perform(self.worker.stop("Ctrl-C"))

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
                case Build() | StoreBlock() | Load() | Apply() | Evaluate():
                    assert self.under_way is None, "computations are under way one at a time"
                    self.under_way = effect
                case Notice() | Leave():
                    pass
        return effects


@pytest.fixture
def stranger() -> Scene:
    return Scene()


@pytest.fixture
def scene() -> Scene:
    """A worker that holds the weights of step 4."""
    scene = Scene()
    scene.hear(WELCOME, TOKENS, snapshot(4))
    for _ in range(3):
        scene.compute()
    return scene


def measured(scene: Scene, members_per_s: float) -> None:
    """Lets the worker find out its speed, with a step that ends at once."""
    scene.hear(assignment(4))
    assert scene.trials is not None
    scene.hear(update(4))
    scene.compute(scene.trials.n_members / members_per_s)
    scene.compute()


# ---- getting ready


def test_conversation_begins_with_hello(stranger: Scene) -> None:
    assert stranger.greeting == [Reply(Hello(PROTOCOL_VERSION, "Ada", 2))]


def test_computations_are_done_in_the_order_of_the_messages(stranger: Scene) -> None:
    stranger.hear(WELCOME, TOKENS, snapshot(4), update(4), update(5))
    kinds = []
    while stranger.under_way is not None:
        kinds.append(type(stranger.under_way))
        stranger.compute()
    assert kinds == [Build, StoreBlock, Load, Apply, Apply]


def test_loaded_snapshot_is_answered_with_the_digest_of_what_was_loaded(stranger: Scene) -> None:
    stranger.hear(WELCOME, TOKENS, snapshot(4), update(4))
    stranger.compute()
    stranger.compute()
    assert replies(Ready, stranger.compute()) == [Ready(4, digest_of(4))]


def test_steps_taken_are_counted(stranger: Scene) -> None:
    stranger.hear(WELCOME, TOKENS, snapshot(4), update(4), update(5))
    for _ in range(5):
        stranger.compute()
    assert stranger.worker.n_steps == 2


# ---- trials


def test_assignment_becomes_trials(scene: Scene) -> None:
    scene.hear(assignment(4, perturbation=Perturbation(0.25, 2)))
    trials = scene.trials
    assert trials is not None
    assert msgspec.structs.replace(trials, n_members=0) == Trials(4, Perturbation(0.25, 2), GROUP, FIRST, 0)
    assert isinstance(scene.under_way, Evaluate)
    assert scene.under_way.block == BLOCK


def test_first_slice_is_small_and_later_ones_are_sized_by_measured_speed(scene: Scene) -> None:
    scene.hear(assignment(4))
    sizes = []
    for members_per_s in (800.0, 1600.0, 400.0, 1.0):
        assert scene.trials is not None
        sizes.append(scene.trials.n_members)
        scene.compute(scene.trials.n_members / members_per_s)
    assert sizes == [4 * GROUP, SLICE_S * 800, SLICE_S * 1600, SLICE_S * 400 // GROUP * GROUP]


def test_results_follow_slice_by_slice_until_the_quota_is_done(scene: Scene) -> None:
    scene.hear(assignment(4))
    results: list[Result] = []
    while scene.trials is not None:
        effects = scene.compute(scene.trials.n_members / 2000.0)
        assert len(replies(Result, effects)) == 1
        results += replies(Result, effects)
    assert len(results) > 3
    assert {(result.step, result.digest) for result in results} == {(4, digest_of(4))}
    assert [result.first_member for result in results] == [int(result.losses[0]) for result in results]
    assert np.concatenate([result.losses for result in results]).tolist() == list(range(FIRST, FIRST + QUOTA))
    assert all(result.losses.size % GROUP == 0 for result in results)


def test_quota_smaller_than_a_slice_is_done_in_one(scene: Scene) -> None:
    scene.hear(assignment(4, quota=2 * GROUP))
    assert scene.trials is not None
    assert scene.trials.n_members == 2 * GROUP
    scene.compute(0.01)
    assert scene.trials is None


def test_no_slice_is_planned_beyond_the_deadline(scene: Scene) -> None:
    scene.hear(assignment(4, time_left_s=1.0))
    start = scene.now
    while scene.trials is not None:
        scene.compute(scene.trials.n_members / 100.0)
    assert start + 0.8 < scene.now <= start + 1.0


def test_slice_is_cut_short_when_little_time_is_left(scene: Scene) -> None:
    measured(scene, 1000.0)
    scene.hear(assignment(5, time_left_s=0.1))
    assert scene.trials is not None
    assert 8 * GROUP <= scene.trials.n_members <= 0.1 * 1000


def test_slow_machine_tries_one_group_of_a_step_and_no_further_one_that_would_come_too_late(scene: Scene) -> None:
    measured(scene, 1.0)
    scene.hear(assignment(5, time_left_s=6.0))
    assert scene.trials is not None
    assert scene.trials.n_members == GROUP
    assert len(replies(Result, scene.compute(4.0))) == 1
    assert scene.trials is None


def test_slice_of_the_fastest_machine_fits_into_a_result(scene: Scene) -> None:
    measured(scene, 1e12)
    scene.hear(assignment(5, quota=10**7 * GROUP))
    assert scene.trials is not None
    assert 0 < scene.trials.n_members <= MAX_SLICE_MEMBERS
    losses = np.zeros(MAX_SLICE_MEMBERS, dtype=np.float32)
    limit = max_message_bytes(Result, max_snapshot_bytes=0)
    assert len(encode(Result(5, FIRST, losses, digest_of(5)))) <= limit


def test_assignment_of_another_step_is_not_begun(scene: Scene) -> None:
    assert scene.hear(assignment(9)) == []


def test_nothing_is_started_after_the_deadline(scene: Scene) -> None:
    scene.hear(update(4), assignment(5, time_left_s=2.0))
    scene.compute(3.0)
    assert scene.under_way is None


def test_trials_wait_for_the_update_before_them(scene: Scene) -> None:
    scene.hear(assignment(4, quota=GROUP), update(4), assignment(5))
    scene.compute(0.1)
    assert isinstance(scene.under_way, Apply)
    scene.compute(0.1)
    assert scene.trials is not None
    assert scene.trials.step == 5
    assert replies(Result, scene.compute(0.1))[0].digest == digest_of(5)


def test_update_ends_the_trials_of_its_step(scene: Scene) -> None:
    scene.hear(assignment(4))
    scene.hear(update(4))
    effects = scene.compute(0.1)
    assert replies(Result, effects) == []
    assert isinstance(scene.under_way, Apply)
    assert scene.compute(0.1) == []


def test_slice_of_the_last_step_is_not_taken_for_the_next(scene: Scene) -> None:
    scene.hear(assignment(4))
    scene.hear(update(4), assignment(5))
    assert replies(Result, scene.compute(0.1)) == []
    scene.compute(0.1)
    assert scene.trials is not None
    assert scene.trials.first_member == FIRST


def test_slice_of_a_population_that_was_given_up_is_not_sent(scene: Scene) -> None:
    scene.hear(assignment(4))
    scene.hear(assignment(4, first_member=FIRST + QUOTA))
    assert replies(Result, scene.compute(20.0)) == []
    scene.hear(assignment(4, first_member=FIRST + 2 * QUOTA))
    assert scene.trials is not None
    assert scene.trials.first_member == FIRST + 2 * QUOTA
    assert len(replies(Result, scene.compute(0.1))) == 1


def test_token_block_between_two_slices_is_stored(scene: Scene) -> None:
    scene.hear(assignment(4))
    scene.hear(TOKENS)
    scene.compute(0.1)
    assert isinstance(scene.under_way, StoreBlock)
    scene.compute()
    assert scene.trials is not None


# ---- drift and the end


def test_resync_drops_the_trials_and_a_new_snapshot_takes_over(scene: Scene) -> None:
    scene.hear(assignment(4))
    assert "it drifted" in of(Notice, scene.hear(Resync("it drifted")))[0].text
    assert scene.compute(0.1) == []
    scene.hear(TOKENS, snapshot(9))
    scene.compute()
    assert replies(Ready, scene.compute()) == [Ready(9, digest_of(9))]
    scene.hear(assignment(9))
    assert replies(Result, scene.compute(0.1))[0].digest == digest_of(9)


@pytest.mark.parametrize(
    ("kind", "is_welcome_back", "is_refusal"),
    [("run_ended", False, False), ("refused", False, True), ("try_again", True, False)],
)
def test_farewell_says_whether_to_come_back(
    scene: Scene,
    kind: Literal["run_ended", "refused", "try_again"],
    is_welcome_back: bool,
    is_refusal: bool,
) -> None:
    effects = scene.hear(Farewell(kind, "because"))
    assert effects == [Leave("because", is_welcome_back=is_welcome_back, is_refusal=is_refusal)]
    assert scene.stop() == []


def test_volunteer_who_leaves_says_goodbye(scene: Scene) -> None:
    scene.hear(assignment(4))
    leave = Leave("Ctrl-C", is_welcome_back=False, is_refusal=False)
    assert scene.stop() == [Reply(Goodbye("Ctrl-C")), leave]


def test_last_updates_are_taken_before_the_volunteer_goes(scene: Scene) -> None:
    scene.hear(assignment(4))
    scene.hear(update(4), update(5))
    assert scene.hear(Farewell("run_ended", "all steps are done")) == []
    scene.compute()
    scene.compute()
    effects = scene.compute()
    assert [type(effect) for effect in effects] == [Leave]
    assert scene.worker.n_steps == 2


def test_snapshot_that_a_farewell_overtook_is_not_answered(stranger: Scene) -> None:
    stranger.hear(WELCOME, TOKENS, snapshot(4), Farewell("try_again", "the server restarts"))
    stranger.compute()
    stranger.compute()
    assert [type(effect) for effect in stranger.compute()] == [Leave]


def test_volunteer_may_leave_while_it_takes_the_last_updates(scene: Scene) -> None:
    scene.hear(update(4), Farewell("run_ended", "all steps are done"))
    assert [type(effect) for effect in scene.stop()] == [Leave]
    assert scene.compute() == []


@pytest.mark.parametrize("message", [snapshot(4), update(4), assignment(4)], ids=["Load", "Apply", "Evaluate"])
def test_nothing_is_answered_or_begun_after_goodbye(scene: Scene, message: Message) -> None:
    if isinstance(message, Snapshot):
        scene.hear(Resync("it drifted"))
    scene.hear(message, TOKENS)
    scene.stop()
    assert scene.worker.received(TOKENS, scene.now) == []  # was on its way
    assert scene.compute(0.1) == []
    assert scene.stop() == []
