"""The coordinator against a scripted clock; every message passes the real connection of its peer."""

import math
from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, TypeVar, final

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlearn.coordination.coordinator import MAX_RESYNCS, Coordinator
from fedlearn.coordination.effects import (
    AppendToJournal,
    ApplyUpdate,
    EndRun,
    Notice,
    Part,
    SaveCheckpoint,
    Send,
    SendBlock,
    SendSnapshot,
    ServerEffect,
    StepReport,
)
from fedlearn.coordination.plan import Plan, Status
from fedlearn.coordination.roster import KEPT_BLOCKS
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.schedules import Schedule
from fedlearn.es.strategy import Strategy
from fedlearn.es.update import Update
from fedlearn.net.memory import MemoryLink
from fedlearn.wire.messages import (
    PROTOCOL_VERSION,
    Assignment,
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
from fedlearn.wire.states import State

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
    learning_rate=0.01,
    optimizer="adam",
    beta1=0.9,
    beta2=0.999,
    fitness_shaping="normalized",
)
PLAN = Plan(
    run="7",
    seed=3,
    model={"architecture": "rnn"},
    layout=ParameterLayout((TensorSpec("vector", (3,)),)),
    blocks=BLOCKS,
    new_tokens_interval=0,
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
    return of(kind, [send.message for send in of(Send, effects) if peer in (None, send.peer)])


def parted(effects: Iterable[ServerEffect]) -> dict[int, tuple[str, str]]:
    return {part.peer: (part.farewell.kind, part.farewell.reason) for part in of(Part, effects)}


@final
class Scene:
    """A coordinator, its clock, and peers that follow the run; checks what must hold whatever happens."""

    def __init__(self, *, step: int = 0, strategy: Strategy = STRATEGY, **plan: Any) -> None:  # noqa: ANN401 (fields of Plan)
        self.now = 1000.0
        self.step = step
        """Of the server's replica, or where it comes with the Update under way."""
        self.effects: list[ServerEffect] = []
        """All that the coordinator wanted done, in order."""
        self.assignments: dict[int, Assignment] = {}
        self.journal: list[Update] = []
        self.is_applying = False
        self.followers: dict[int, int] = {}
        """Step of the replica of each peer that was sent a Snapshot."""
        self.snapshots: dict[int, int] = {}
        """Step of the last Snapshot that each was sent."""
        self.reported: dict[tuple[int, int], set[int]] = {}
        """Members by step and peer whose losses may count."""
        self._blocks: dict[int, deque[bytes]] = {}
        self._n_sent: dict[int, int] = {}
        self._links: dict[int, MemoryLink] = {}
        self.coordinator = Coordinator(
            msgspec.structs.replace(PLAN, **plan),
            strategy,
            step=step,
            last=None,
            digest=digest_of(step),
            now=self.now,
        )

    # ---- what happens; each gives the effects

    def connect(self, peer: int) -> list[ServerEffect]:
        self._links[peer] = MemoryLink(now=self.now)
        self._blocks[peer] = deque(maxlen=KEPT_BLOCKS)
        return self._perform(self.coordinator.connected(peer))

    def say(self, peer: int, *messages: Message) -> list[ServerEffect]:
        effects = []
        for message in messages:
            link = self._links[peer]
            link.client.send(message)
            for arrived in link.to_server(self.now):
                effects += self._perform(self.coordinator.received(peer, arrived, self.now))
        return effects

    def greet(self, peer: int, name: str | None = None) -> list[ServerEffect]:
        hello = Hello(PROTOCOL_VERSION, f"volunteer {peer}" if name is None else name, 1)
        return [*self.connect(peer), *self.say(peer, hello)]

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

    def drop(self, peer: int) -> list[ServerEffect]:
        self.followers.pop(peer, None)
        return self._perform(self.coordinator.disconnected(peer, "the line broke", self.now))

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

    def stop(self) -> list[ServerEffect]:
        return self._perform(self.coordinator.stop("Ctrl-C"))

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

    def _perform(self, effects: list[ServerEffect]) -> list[ServerEffect]:
        for effect in effects:
            self.effects.append(effect)
            match effect:
                case Send(peer, message):
                    self._send(peer, message)
                case SendSnapshot(peer):
                    assert not self.is_applying
                    none = np.zeros(1, dtype=np.float32)
                    self._send(peer, Snapshot(self.step, digest_of(self.step), none, none, none, 1.0, 1.0))
                case SendBlock(peer, block):
                    self._send(peer, TokenBlock(block, np.zeros(1, dtype=np.uint16)))
                case Part(peer, farewell):
                    self._send(peer, farewell)
                    self.followers.pop(peer, None)
                    self.reported.pop((self.step, peer), None)
                case AppendToJournal(update):
                    assert update.step == self.step
                    self.journal.append(update)
                case ApplyUpdate(update):
                    assert not self.is_applying
                    self.is_applying = True
                    self.step = update.step + 1
                case _:
                    pass
        return effects

    def _send(self, peer: int, message: Message) -> None:
        """Carries a message over, and takes what must hold for whoever follows the run."""
        self._links[peer].server.send(message)
        self._links[peer].to_client(self.now)
        match message:
            case TokenBlock():
                self._blocks[peer].append(message.block)
            case Snapshot():
                self.followers[peer] = self.snapshots[peer] = message.step
            case Resync():
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


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def pair() -> Scene:
    """Volunteers 1 and 2, each with half the members of step 1 as its lease."""
    scene = Scene()
    scene.join(1)
    scene.join(2)
    scene.now += 1.0
    scene.report(1)
    scene.applied()
    leases = {peer: (lease.step, lease.first_member, lease.quota) for peer, lease in scene.assignments.items()}
    assert leases == {1: (1, 0, HALF), 2: (1, HALF, HALF)}
    return scene


# ---- joining


def test_hello_is_answered_with_the_run_its_block_and_a_snapshot(scene: Scene) -> None:
    assert scene.connect(1) == []
    assert scene.say(1, Hello(PROTOCOL_VERSION, "Ada", 8)) == [
        Send(1, Welcome("7", 3, {"architecture": "rnn"})),
        SendBlock(1, BLOCKS[0]),
        SendSnapshot(1),
    ]


def test_other_protocol_version_is_refused_with_the_reason(scene: Scene) -> None:
    scene.connect(1)
    effects = scene.say(1, Hello(PROTOCOL_VERSION + 1, "Ada", 8))
    (kind, reason) = parted(effects)[1]
    assert kind == "refused"
    assert f"expected {PROTOCOL_VERSION}, got {PROTOCOL_VERSION + 1}" in reason
    assert [type(effect) for effect in effects] == [Notice, Part]
    assert scene.drop(1) == []


def test_volunteer_without_a_name_is_called_by_its_number(scene: Scene) -> None:
    scene.greet(5, name="")
    assert scene.say(5, Ready(0, digest_of(0)))[0] == Notice("volunteer 5 joined")


def test_first_ready_volunteer_is_given_the_whole_population(scene: Scene) -> None:
    scene.greet(1)
    (assignment,) = sent(Assignment, scene.say(1, Ready(0, digest_of(0))))
    assert assignment == Assignment(
        step=0,
        block=BLOCKS[0],
        perturbation=Perturbation(sigma=0.1, rank=1),
        group_size=GROUP,
        first_member=0,
        quota=LIMIT,
        time_left_s=TIME_PER_STEP,
    )


def test_joiner_is_admitted_at_the_next_step_and_nobody_waits_for_it(scene: Scene) -> None:
    scene.join(1)
    effects = scene.join(2)
    assert Notice("volunteer 2 joined") in effects
    assert sent(Assignment, effects) == []
    effects = scene.report(1)  # the step is complete without the joiner
    assert [update.step for update in sent(Update, effects, peer=2)] == [0]
    assert {send.peer for send in of(Send, effects) if isinstance(send.message, Assignment)} == {1, 2}


def test_snapshot_waits_while_the_servers_replica_is_between_two_steps(scene: Scene) -> None:
    scene.join(1)
    scene.report(1)
    effects = scene.greet(2)
    assert [type(send.message) for send in of(Send, effects)] == [Welcome]
    assert of(SendSnapshot, effects) == []
    assert of(SendSnapshot, scene.applied()) == [SendSnapshot(2)]
    assert sent(Assignment, scene.say(2, Ready(1, digest_of(1)))) == []
    assert sent(Assignment, scene.report(1), peer=2)[0].step == 2


def test_joiner_gets_every_update_after_its_snapshot_and_none_before(scene: Scene) -> None:
    scene.join(1)
    scene.report(1)
    scene.greet(2)  # waits for its Snapshot
    scene.greet(3)
    scene.drop(3)
    scene.applied()
    assert sent(Update, scene.effects, peer=2) == []
    for _ in range(3):
        scene.report(1)
        scene.applied()
    assert [update.step for update in sent(Update, scene.effects, peer=2)] == [1, 2, 3]
    scene.say(2, Ready(1, digest_of(1)))
    scene.report(1)
    assert [update.step for update in sent(Update, scene.effects, peer=2)] == [1, 2, 3, 4]
    assert scene.assignments[2].step == 5


def test_ready_with_another_digest_is_resynchronised(scene: Scene) -> None:
    scene.greet(1)
    effects = scene.say(1, Ready(0, WRONG_DIGEST))
    assert sent(Resync, effects, peer=1)
    assert of(SendSnapshot, effects) == [SendSnapshot(1)]
    assert sent(Assignment, effects) == []
    assert sent(Assignment, scene.say(1, Ready(0, digest_of(0))), peer=1)


def test_joiner_on_a_slow_line_may_take_its_time(scene: Scene) -> None:
    scene.join(1)
    scene.greet(2)
    for _ in range(300):
        scene.report(1)
        scene.applied()
    assert Notice("volunteer 2 joined") in scene.say(2, Ready(0, digest_of(0)))


# ---- leases


def test_leases_are_private_whole_groups_that_sum_to_the_limit(scene: Scene) -> None:
    for peer in (1, 2, 3):
        scene.join(peer)
    scene.report(1)
    leases = sorted((a.first_member, a.quota) for a in scene.assignments.values())
    assert len(leases) == 3
    assert leases[0][0] == 0
    assert all(first + quota == following for (first, quota), (following, _) in pairwise(leases))
    assert sum(quota for _, quota in leases) == LIMIT
    assert all(quota % GROUP == 0 for _, quota in leases)


def test_shares_follow_measured_speed(pair: Scene) -> None:
    members_per_s = {1: 10.0, 2: 30.0}
    for _ in range(12):
        opened = pair.now
        done_after = {peer: pair.assignments[peer].quota / speed for peer, speed in members_per_s.items()}
        for peer in sorted(done_after, key=lambda peer: done_after[peer]):
            pair.now = opened + done_after[peer]
            pair.report(peer)
        pair.applied()
    assert pair.assignments[2].quota / pair.assignments[1].quota == pytest.approx(3, rel=0.3)


def test_population_follows_the_speed_but_not_below_its_limit() -> None:
    scene = Scene(strategy=msgspec.structs.replace(STRATEGY, max_population=1024))
    scene.join(1)
    populations = []
    for duration_s in (1 / 128, 1 / 4, 2.0, 0.0):
        populations.append(scene.assignments[1].quota)
        scene.now += duration_s
        scene.report(1)
        scene.applied()
    assert populations == [LIMIT, 160, 88, LIMIT]
    assert scene.assignments[1].quota == 1024


def test_population_follows_the_speed_of_all_volunteers_together() -> None:
    scene = Scene(strategy=msgspec.structs.replace(STRATEGY, max_population=1024))
    scene.join(1)
    scene.join(2)
    scene.now += 1 / 128
    scene.report(1)
    scene.applied()
    assert [scene.assignments[peer].quota for peer in (1, 2)] == [80, 80]
    scene.now += 1 / 64
    scene.report(1)
    scene.report(2)
    assert sum(scene.assignments[peer].quota for peer in (1, 2)) == 232


def test_volunteer_cut_by_the_deadline_gets_a_smaller_share(pair: Scene) -> None:
    for _ in range(3):
        pair.now += 1.0
        pair.report(1, GROUP)
        pair.report(2)
        pair.wait(TIME_PER_STEP - 1.0)
        pair.applied()
    assert GROUP <= pair.assignments[1].quota < HALF


def test_straggler_is_cut_soon_after_half_the_population_is_in(pair: Scene) -> None:
    pair.report(1)
    assert not pair.wait(0.4)
    assert of(AppendToJournal, pair.wait(0.2))


def test_silent_volunteer_is_waited_for_ever_more_seldom(pair: Scene) -> None:
    waited = []
    for step in range(40):
        n_closed = len(pair.journal)
        pair.report(1)
        if len(pair.journal) == n_closed:
            pair.wait(TIME_PER_STEP)
            waited.append(step)
        pair.applied()
    assert [later - earlier for earlier, later in pairwise(waited)] == [2, 3, 5, 9, 17]


def test_volunteer_that_sends_again_is_benched_as_at_first(pair: Scene) -> None:
    for _ in range(3):
        pair.report(1)
        pair.wait(TIME_PER_STEP)  # volunteer 2 sends nothing,
        pair.applied()
        pair.report(1)  # rests for one step,
        pair.applied()
        pair.report(1)
        pair.report(2)  # and sends again
        assert len(of(StepReport, pair.applied())) == 1


def test_volunteers_beyond_the_number_of_groups_take_turns() -> None:
    scene = Scene()
    n_groups = LIMIT // GROUP
    for peer in range(1, n_groups + 3):
        scene.join(peer)
    leased: set[int] = set()
    for _ in range(n_groups + 3):
        holders = [peer for peer, assignment in scene.assignments.items() if assignment.step == len(scene.journal)]
        assert sum(scene.assignments[peer].quota for peer in holders) <= LIMIT
        leased |= set(holders)
        for peer in holders:
            scene.report(peer)
        scene.applied()
    assert leased == set(range(1, n_groups + 3))


def test_negative_losses_are_refused_and_void(pair: Scene) -> None:
    losses = np.full(HALF, -1.0, dtype=np.float32)
    effects = pair.report(1, losses=losses)
    assert "expected nats per token" in parted(effects)[1][1]


def test_volunteer_that_never_sent_anything_can_be_the_last_one_left(pair: Scene) -> None:
    pair.report(1)
    pair.wait(TIME_PER_STEP)
    pair.applied()  # volunteer 2 has a speed of 0 now
    assert sent(Assignment, pair.drop(1), peer=2)  # nobody else is there: it gets another chance
    pair.report(2)
    pair.applied()
    assert pair.assignments[2].quota == LIMIT


# ---- results


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("somebody else's members", {"first_member": 0}),
        ("members left out", {"first_member": HALF + 2 * GROUP}),
        ("more than was leased", {"losses": np.zeros(LIMIT, dtype=np.float32)}),
        ("part of a group", {"losses": np.zeros(GROUP - 1, dtype=np.float32)}),
        ("nothing", {"losses": np.zeros(0, dtype=np.float32)}),
    ],
)
def test_result_that_was_not_asked_for_sends_away_and_voids_all_of_the_step(
    pair: Scene, what: str, changes: dict[str, Any]
) -> None:
    pair.report(2, GROUP)
    effects = pair.report(2, GROUP, **changes)
    kind, reason = parted(effects)[2]
    assert kind == "refused", what
    assert "of a Result: expected" in reason
    (update,) = sent(Update, pair.report(1))
    assert update.spans == ((0, HALF),)


def test_sending_the_last_one_missing_away_closes_the_step(pair: Scene) -> None:
    pair.report(1)
    effects = pair.report(2, first_member=0)
    assert list(parted(effects)) == [2]
    assert [update.spans for update in sent(Update, effects)] == [((0, HALF),)]


def test_late_result_is_dropped_without_harm(pair: Scene) -> None:
    pair.report(1)
    pair.report(2, GROUP)
    pair.wait(TIME_PER_STEP)
    assert pair.step == 2
    assert pair.report(2, GROUP, step=1, digest=digest_of(1)) == []
    pair.applied()
    assert pair.report(2, GROUP, step=1, digest=digest_of(1)) == []
    assert not sent(Resync, pair.effects)
    assert not of(Part, pair.effects)


def test_result_of_a_population_that_was_given_up_is_dropped_without_harm(scene: Scene) -> None:
    scene.join(1)
    old = scene.assignments[1]
    scene.wait(TIME_PER_STEP)
    new = scene.assignments[1]
    assert (new.step, new.first_member) == (old.step, old.first_member + LIMIT)
    assert scene.report(1, GROUP, first_member=old.first_member) == []
    assert scene.report(1, LIMIT - GROUP, first_member=new.first_member) == []
    (update,) = sent(Update, scene.report(1, GROUP, first_member=new.first_member + LIMIT - GROUP))
    assert update.spans == ((LIMIT, LIMIT),)


def test_result_of_somebody_without_a_lease_is_dropped_without_harm(scene: Scene) -> None:
    scene.join(1)
    scene.join(2)
    losses = np.zeros(GROUP, dtype=np.float32)
    assert scene.say(2, Result(0, 0, losses, digest_of(0))) == []
    assert sent(Update, scene.report(1))[0].spans == ((0, LIMIT),)


def test_result_while_the_servers_replica_takes_the_step_is_held_and_counted_after(pair: Scene) -> None:
    pair.report(1)
    pair.report(2)
    assert pair.report(1, GROUP) == pair.report(1, GROUP) == []  # of step 2, while step 1 is applied
    pair.applied()
    pair.wait(TIME_PER_STEP)
    assert pair.journal[-1].spans == ((0, 2 * GROUP),)


def test_held_results_that_complete_the_step_close_it_at_once(pair: Scene) -> None:
    pair.report(1)
    pair.report(2)
    assert pair.report(1) == pair.report(2) == []
    effects = pair.applied()
    assert [update.step for update in sent(Update, effects, peer=1)] == [2]
    assert of(ApplyUpdate, effects)


def test_held_result_of_a_drifted_replica_does_not_count(pair: Scene) -> None:
    pair.report(1)
    pair.report(2)
    lease = pair.assignments[2]
    pair.report(1, digest=WRONG_DIGEST)
    pair.report(2)
    effects = pair.applied()
    assert sent(Resync, effects, peer=1)
    assert [update.spans for update in sent(Update, effects, peer=2)] == [((lease.first_member, lease.quota),)]


def test_held_result_of_somebody_who_left_is_dropped_without_harm(pair: Scene) -> None:
    pair.report(1)
    pair.report(2)
    pair.report(1)
    pair.drop(1)
    pair.applied()
    (update,) = sent(Update, pair.report(2), peer=2)
    assert update.step == 2


# ---- how a step closes


def test_complete_step_is_journalled_before_it_is_sent_and_applied_after(pair: Scene) -> None:
    pair.report(1)
    effects = pair.report(2)
    kinds = [type(e.message) if isinstance(e, Send) else type(e) for e in effects]
    assert kinds == [AppendToJournal, Update, Update, Assignment, Assignment, ApplyUpdate]
    assert of(AppendToJournal, effects)[0].update is of(ApplyUpdate, effects)[0].update


def test_update_counts_every_member_with_its_own_loss(pair: Scene) -> None:
    pair.report(2)
    pair.report(1, GROUP)
    effects = pair.report(1)
    update = sent(Update, effects)[0]
    assert update.step == 1
    assert update.spans == ((0, LIMIT),)
    # Losses ascend with member numbers: the first of each group has the best utility.
    groups = update.utilities.reshape(-1, GROUP)
    assert (np.diff(groups.astype(int), axis=1) < 0).all()


def test_time_up_closes_a_step_with_what_is_in(pair: Scene) -> None:
    pair.report(1, 2 * GROUP)
    pair.report(2, GROUP)
    assert pair.wait(TIME_PER_STEP - 0.01) == []
    (update,) = sent(Update, pair.wait(0.01), peer=1)
    assert update.spans == ((0, 2 * GROUP), (HALF, GROUP))


def test_time_up_waits_for_the_servers_own_replica(pair: Scene) -> None:
    pair.report(1)
    pair.report(2)
    pair.report(1, GROUP)
    assert pair.wait(2 * TIME_PER_STEP) == []
    pair.applied()
    assert [update.step for update in sent(Update, pair.wait(0.0), peer=1)] == [2]


def test_step_to_which_nothing_came_opens_again_under_fresh_member_numbers(pair: Scene) -> None:
    effects = pair.wait(TIME_PER_STEP)
    assert of(AppendToJournal, effects) == []
    again = sorted((a.first_member, a.quota, a.step) for a in sent(Assignment, effects))
    assert again[0][0] == LIMIT
    assert sum(quota for _, quota, _ in again) == LIMIT
    assert {step for _, _, step in again} == {1}
    pair.report(1)
    (update,) = sent(Update, pair.report(2), peer=1)
    assert update.spans == ((LIMIT, LIMIT),)
    pair.applied()
    assert min(a.first_member for a in pair.assignments.values()) == 0


@pytest.mark.parametrize("way", ["killed", "goodbye"])
def test_what_a_volunteer_sent_before_it_left_counts_and_nobody_waits_for_the_rest(pair: Scene, way: str) -> None:
    pair.report(2)
    pair.report(1, GROUP)
    effects = pair.drop(1) if way == "killed" else pair.leave(1)
    assert Notice("volunteer 1 left: the line broke") in effects
    (update,) = sent(Update, effects)
    assert update.spans == ((0, GROUP), (HALF, HALF))
    assert of(Send, effects)[0].peer == 2
    pair.applied()
    assert pair.assignments[2].quota == LIMIT


def test_report_of_a_step_has_its_figures(pair: Scene) -> None:
    pair.join(3)  # contributes nothing to this step
    pair.report(1)
    pair.now += 2.5
    pair.report(2)
    assert of(StepReport, pair.applied()) == [
        StepReport(
            step=1,
            loss=(LIMIT - 1) / 2,
            members=LIMIT,
            duration_s=2.5,
            volunteers=2,
            digest=digest_of(2),
        )
    ]


def test_loss_is_the_mean_of_the_finite_losses_and_broken_groups_count_zero(scene: Scene) -> None:
    scene.join(1)
    losses = np.resize(np.array([1, 2, 3, 4], dtype=np.float32), LIMIT)
    losses[: 2 * GROUP] = [math.nan, 1, 1, 1, math.inf, 1, 1, 5]
    scene.report(1, losses=losses)
    utilities = scene.journal[0].utilities
    assert not utilities[: 2 * GROUP].any()
    assert utilities[-GROUP:].any()
    (report,) = of(StepReport, scene.applied())
    assert report.loss == pytest.approx(losses[np.isfinite(losses)].mean())
    assert report.members == LIMIT


def test_step_without_any_finite_loss_goes_by(scene: Scene) -> None:
    scene.join(1)
    scene.report(1, losses=np.full(LIMIT, math.nan, dtype=np.float32))
    assert not scene.journal[0].utilities.any()
    assert math.isfinite(scene.journal[0].gradient_scale)
    (report,) = of(StepReport, scene.applied())
    assert math.isnan(report.loss)
    assert scene.assignments[1].step == 1


# ---- drift


def test_drifted_volunteer_is_resynchronised_and_its_results_do_not_count(pair: Scene) -> None:
    pair.report(1, GROUP)
    effects = pair.report(1, GROUP, digest=WRONG_DIGEST)
    assert "volunteer 1 drifted" in of(Notice, effects)[0].text
    kinds = [type(e.message) if isinstance(e, Send) else type(e) for e in effects]
    assert kinds == [Notice, Resync, SendBlock, SendSnapshot]
    (update,) = sent(Update, pair.report(2), peer=2)
    assert update.spans == ((HALF, HALF),)


def test_drift_of_the_last_one_missing_closes_the_step(pair: Scene) -> None:
    pair.report(2)
    effects = pair.report(1, GROUP, digest=WRONG_DIGEST)
    assert [update.step for update in sent(Update, effects, peer=2)] == [1]
    assert [update.step for update in sent(Update, effects, peer=1)] == [1]  # it was sent the Snapshot before it


def test_resynchronised_volunteer_contributes_again(pair: Scene) -> None:
    pair.report(1, GROUP, digest=WRONG_DIGEST)
    assert pair.report(1, GROUP, digest=WRONG_DIGEST) == []  # was on its way already
    effects = pair.say(1, Ready(1, digest_of(1)))
    assert sent(Assignment, effects) == []
    pair.report(2)
    assert pair.assignments[1].step == 2
    pair.applied()
    pair.report(1)
    pair.report(2)
    assert pair.journal[-1].spans == ((0, LIMIT),)


def drift(scene: Scene, peer: int) -> list[ServerEffect]:
    """A Result with another digest, and Ready after the Snapshot that follows."""
    effects = scene.report(peer, GROUP, digest=WRONG_DIGEST)
    if not of(Part, effects):
        scene.say(peer, Ready(scene.step, digest_of(scene.step)))
    return effects


def test_volunteer_that_drifts_too_often_in_a_row_is_sent_away(pair: Scene) -> None:
    for _ in range(MAX_RESYNCS):
        assert parted(drift(pair, 1)) == {}
        pair.report(2)
        pair.applied()
    kind, reason = parted(drift(pair, 1))[1]
    assert kind == "refused"
    assert f"{MAX_RESYNCS + 1} times in a row" in reason
    pair.report(2)
    pair.applied()
    assert pair.assignments[2].quota == LIMIT


def test_drifts_with_good_steps_in_between_are_forgiven(pair: Scene) -> None:
    for _ in range(2 * MAX_RESYNCS):
        assert parted(drift(pair, 1)) == {}
        pair.report(2)
        pair.applied()
        pair.report(1, GROUP)  # never the whole lease
        pair.wait(TIME_PER_STEP)
        pair.applied()


def test_right_results_on_a_fresh_snapshot_do_not_prove_good_arithmetic(scene: Scene) -> None:
    scene.join(1)
    for _ in range(MAX_RESYNCS):
        scene.report(1)  # with the weights of the Snapshot
        scene.applied()
        assert parted(drift(scene, 1)) == {}
    scene.report(1)
    scene.applied()
    assert parted(drift(scene, 1))[1][0] == "refused"


# ---- nobody left


def test_run_idles_when_all_have_gone_and_the_next_joiner_takes_it_up(pair: Scene) -> None:
    pair.report(1, GROUP)
    pair.drop(1)
    pair.drop(2)
    assert [update.step for update in pair.journal] == [0, 1]
    pair.applied()
    assert pair.wait(10 * TIME_PER_STEP) == []
    (assignment,) = sent(Assignment, pair.join(3), peer=3)
    assert (assignment.step, assignment.first_member, assignment.quota) == (2, 0, LIMIT)


def test_step_that_all_left_before_the_first_result_is_opened_for_the_next_joiner(pair: Scene) -> None:
    pair.drop(1)
    pair.drop(2)
    assert pair.wait(10 * TIME_PER_STEP) == []
    (assignment,) = sent(Assignment, pair.join(3), peer=3)
    assert (assignment.step, assignment.quota) == (1, LIMIT)


def test_volunteers_may_all_leave_while_the_servers_replica_takes_a_step(pair: Scene) -> None:
    pair.report(1)
    pair.report(2)
    pair.drop(1)
    pair.drop(2)
    assert len(of(StepReport, pair.applied())) == 1
    (assignment,) = sent(Assignment, pair.join(3), peer=3)
    assert assignment.step == 2


# ---- how a run ends


def test_run_ends_after_its_last_step_with_checkpoint_and_farewells() -> None:
    scene = Scene(steps=2)
    scene.join(1)
    scene.report(1)
    scene.applied()
    scene.join(2)
    scene.connect(4)
    effects = scene.report(1)
    assert sent(Assignment, effects) == []
    scene.greet(3)
    effects = scene.applied()
    farewell = ("run_ended", "all 2 steps are done")
    assert [type(e) for e in effects] == [StepReport, SaveCheckpoint, Part, Part, Part, EndRun]
    assert parted(effects) == {1: farewell, 2: farewell, 3: farewell}
    assert effects[-1] == EndRun("all 2 steps are done")


def test_run_ends_with_the_step_in_which_its_time_is_over() -> None:
    scene = Scene(duration_s=5.0)
    scene.join(1)
    for seconds in (3.0, 1.5):
        scene.now += 100.0  # the run waits for its own replica, or for volunteers: no time of training
        scene.drop(1)
        scene.join(1)
        scene.now += seconds
        assert sent(Assignment, scene.report(1)) != []
        assert of(EndRun, scene.applied()) == []
    assert scene.coordinator.status(scene.now).run_left_s == 0.5
    scene.now += 0.5
    assert sent(Assignment, scene.report(1)) == []
    effects = scene.applied()
    assert [update.elapsed_s for update in scene.journal] == [3.0, 4.5, 5.0]
    assert parted(effects) == {1: ("run_ended", "the 5 s of training are over")}
    assert effects[-1] == EndRun("the 5 s of training are over")


def test_learning_rate_and_sigma_follow_the_schedules_of_the_run() -> None:
    schedule = Schedule(learning_rate="linear", sigma="linear", steps=4)
    scene = Scene(strategy=msgspec.structs.replace(STRATEGY, schedule=schedule), steps=4)
    scene.join(1)
    sigmas = []
    for _ in range(4):
        sigmas.append(scene.assignments[1].perturbation.sigma)
        scene.report(1)
        scene.applied()
    assert sigmas == pytest.approx([0.1, 0.0775, 0.055, 0.0325])
    assert [update.learning_rate for update in scene.journal] == pytest.approx([0.01, 0.0075, 0.005, 0.0025])


def test_stop_gives_up_the_open_step(pair: Scene) -> None:
    pair.report(1)
    effects = pair.stop()
    assert [type(e) for e in effects] == [SaveCheckpoint, Part, Part, EndRun]
    assert set(parted(effects).values()) == {("try_again", "Ctrl-C")}


def test_stop_waits_for_the_update_under_way(pair: Scene) -> None:
    pair.report(1)
    pair.report(2)
    assert pair.stop() == []
    effects = pair.applied()
    assert [type(e) for e in effects] == [StepReport, SaveCheckpoint, Part, Part, EndRun]


def test_nothing_happens_after_the_end(pair: Scene) -> None:
    pair.report(1)
    pair.stop()
    assert pair.coordinator.received(2, Goodbye("bye"), pair.now) == []
    assert pair.drop(1) == []
    assert pair.wait(TIME_PER_STEP) == []
    assert pair.stop() == []


@pytest.mark.parametrize("step", [5, 6])
def test_run_that_was_complete_when_it_was_resumed_ends_at_once(step: int) -> None:
    scene = Scene(step=step, steps=5)
    assert scene.greet(1)
    effects = scene.wait(0.0)
    assert [type(e) for e in effects] == [SaveCheckpoint, Part, EndRun]
    assert scene.wait(1.0) == []


# ---- checkpoints, token blocks, status


def test_checkpoint_is_saved_when_it_is_due_and_due_again_after_its_time(scene: Scene) -> None:
    scene.join(1)
    saved = []
    for seconds in (CHECKPOINT_TIME - 1, 0.5, 1.0, CHECKPOINT_TIME - 1, 1.0):
        scene.now += seconds
        scene.report(1)
        assert not of(SaveCheckpoint, scene.effects[-6:])
        effects = scene.applied()
        saved.append(bool(of(SaveCheckpoint, effects)))
        scene.effects.clear()
    assert saved == [False, False, True, False, True]


def test_token_block_is_sent_before_it_is_needed_and_once_while_it_is_held() -> None:
    scene = Scene(new_tokens_interval=2)
    scene.join(1)
    for _ in range(8):
        scene.report(1)
        scene.applied()
    story: list[object] = []
    for effect in scene.effects:
        match effect:
            case SendBlock(1, block):
                story.append(block)
            case Send(1, Assignment(step=step, block=block)):
                story.append((step, block))
            case _:
                pass
    a, b, c = BLOCKS
    assert story == [a, (0, a), (1, a), b, (2, b), (3, b), c, (4, c), (5, c), a, (6, a), (7, a), b, (8, b)]


def test_two_blocks_in_turn_are_sent_once_each() -> None:
    scene = Scene(new_tokens_interval=1, blocks=BLOCKS[:2])
    scene.join(1)
    for _ in range(6):
        scene.report(1)
        scene.applied()
    assert [effect.block for effect in of(SendBlock, scene.effects)] == list(BLOCKS[:2])


def test_joiner_has_the_block_of_every_update_that_follows_its_snapshot() -> None:
    scene = Scene(new_tokens_interval=1)
    scene.join(1)
    scene.greet(2)
    for _ in range(5):
        scene.report(1)
        scene.applied()
    # That its block is there with each Update is seen to by Scene.
    assert [update.step for update in sent(Update, scene.effects, peer=2)] == list(range(5))


def test_drifted_volunteer_is_sent_its_block_anew(pair: Scene) -> None:
    effects = pair.report(1, GROUP, digest=WRONG_DIGEST)
    assert of(SendBlock, effects) == [SendBlock(1, BLOCKS[0])]


def test_status_says_where_the_run_stands(pair: Scene) -> None:
    pair.greet(3)  # is not ready
    pair.now += 4.0
    status = pair.coordinator.status(pair.now)
    assert status == Status(step=1, volunteers=2, step_left_s=TIME_PER_STEP - 4.0, run_left_s=math.inf)
    assert pair.coordinator.status(pair.now + 100.0).step_left_s == 0.0
    assert Scene(step=9).coordinator.status(0.0).step_left_s == 0.0


# ---- whatever happens

EVENTS = st.tuples(
    st.sampled_from(["greet", "ready", "report", "report", "all", "drift", "drop", "goodbye", "apply", "wait"]),
    st.integers(0, 5),
)


@given(st.lists(EVENTS, max_size=60), st.integers(0, 2))
def test_run_goes_on_and_counts_only_what_was_leased_and_right(
    events: list[tuple[str, int]], new_tokens_interval: int
) -> None:
    scene = Scene(new_tokens_interval=new_tokens_interval)
    for event, number in [("greet", 0), ("ready", 0), ("all", 0), *events]:
        happen(scene, event, number)
    n_steps = scene.step
    for event in ("apply", "ready", "wait", "apply", "all", "wait", "apply"):
        for index in range(len(scene.followers)):
            happen(scene, event, index if event != "wait" else 2)
    assert not scene.followers or scene.step > n_steps
    assert [update.step for update in scene.journal] == list(range(len(scene.journal)))
    for update in scene.journal:
        assert all(first % GROUP == 0 and count % GROUP == 0 for first, count in update.spans)
        assert all(first + count < following for (first, count), (following, _) in pairwise(update.spans))
        members = {member for first, count in update.spans for member in range(first, first + count)}
        assert len(members) == update.utilities.size
        assert members <= set().union(*(m for (step, _), m in scene.reported.items() if step == update.step))


def happen(scene: Scene, event: str, number: int) -> None:
    """Lets something happen to one of the followers, if it can."""
    if event == "greet":
        scene.greet(1 + scene.n_peers)
    elif event == "apply":
        if scene.is_applying:
            scene.applied()
    elif event == "wait":
        scene.wait(TIME_PER_STEP / 2 * number)
    elif scene.followers:
        peer = list(scene.followers)[number % len(scene.followers)]
        left = scene.remaining(peer)
        match event, scene.state_of(peer):
            case "ready", State.SYNCING:
                scene.say(peer, Ready(scene.snapshots[peer], digest_of(scene.snapshots[peer])))
            case (("report" | "all" | "drift"), State.ACTIVE) if left > 0:
                count = left if event == "all" else min(left, GROUP * (1 + number))
                digest = WRONG_DIGEST if event == "drift" else digest_of(scene.assignments[peer].step)
                scene.report(peer, count, digest=digest)
            case "goodbye", _:
                scene.leave(peer)
            case "drop", _:
                scene.drop(peer)
            case _:
                pass
