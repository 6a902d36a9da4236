"""When steps are opened and closed, without the messages that lead to it."""

from typing import final

import msgspec
import numpy as np
import pytest

from fedlearn.coordination.audits.auditor import Auditor
from fedlearn.coordination.effects import AppendToJournal, ApplyUpdate, Broadcast, Notice, Peer, Send
from fedlearn.coordination.people.credit import Ledger
from fedlearn.coordination.people.roster import Phase, Roster, Volunteer
from fedlearn.coordination.steps.step_loop import StepLoop
from fedlearn.coordination.steps.step_source import OwnSteps
from fedlearn.es.attempts import BLOCK_STEPS, Attempts
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.strategy import Strategy
from fedlearn.es.sums.estimate import NO_ESTIMATE
from fedlearn.wire.messages import Assignment
from tests.coordination.coordinator.scene import GROUP, LIMIT, PLAN, STRATEGY, TIME_PER_STEP, of

NOW = 100.0


@final
class Scene:
    """A course with volunteers who are ready."""

    def __init__(
        self, n_volunteers: int = 1, *, steps: int = 0, strategy: Strategy = STRATEGY, is_fed: bool = False
    ) -> None:
        self.volunteers: dict[Peer, Volunteer] = {}
        for peer in range(n_volunteers):
            self.volunteers[peer] = Volunteer(peer)
            self.volunteers[peer].phase = Phase.READY
        self.steps = OwnSteps(msgspec.structs.replace(PLAN, steps=steps), strategy, is_fed=is_fed)
        ledger = Ledger(0, NOW, work_per_member=1)
        self.course = StepLoop(
            self.steps,
            Roster(self.volunteers),
            step=0,
            last=None,
            time_per_step=TIME_PER_STEP,
            auditor=Auditor(0.0, ledger, lottery=None),
            ledger=ledger,
        )

    def report(self, peer: int, n_members: int) -> None:
        """The beginning of a lease is in."""
        lease = self.volunteers[peer].lease
        assert lease is not None
        first = lease.first_member
        assert not lease.take(first, np.arange(n_members, dtype=np.float32), NO_ESTIMATE, GROUP)


def test_step_is_opened_once_for_all_who_are_ready() -> None:
    scene = Scene(2)
    scene.volunteers[1].phase = Phase.SYNCING
    assignments = [send.message for send in of(Send, scene.course.open_next(NOW))]
    assert [(type(message), message.quota) for message in assignments if isinstance(message, Assignment)] == [
        (Assignment, LIMIT)
    ]
    assert scene.course.open_next(NOW) == []
    assert scene.course.step_left_s(NOW + 4.0) == TIME_PER_STEP - 4.0


def test_nothing_is_opened_without_volunteers_after_the_last_step_or_the_end() -> None:
    nobody, done, over = Scene(0), Scene(steps=1), Scene()
    done.course.step = 1
    over.course.end()
    for scene in (nobody, done, over):
        assert scene.course.open_next(NOW) == []
        assert scene.course.open is None
        assert scene.course.step_left_s(NOW) == 0.0
    assert done.course.completion == "all 1 steps are done"


@pytest.mark.parametrize(
    ("n_members", "after_s", "closes"), [(LIMIT, 1.0, True), (GROUP, 1.0, False), (GROUP, 10.0, True)]
)
def test_step_closes_when_it_is_complete_or_its_time_is_up(n_members: int, after_s: float, *, closes: bool) -> None:
    scene = Scene()
    scene.course.open_next(NOW)
    scene.report(0, n_members)
    effects = scene.course.close_if_complete(NOW + after_s)
    kinds = [type(effect) for effect in effects]
    assert kinds == ([AppendToJournal, Broadcast, Send, ApplyUpdate] if closes else [])
    assert scene.course.step == int(closes)
    assert (scene.course.closed is not None) is closes
    assert scene.course.members_per_s == pytest.approx(n_members / after_s if closes else 0.0)


def test_step_does_not_close_before_the_last_one_is_taken() -> None:
    scene = Scene()
    scene.course.open_next(NOW)
    for n_closed in (1, 1):
        scene.report(0, LIMIT)
        scene.course.close_if_complete(NOW + 1.0)
        assert scene.course.step == n_closed
        assert scene.course.tick(NOW + 100.0) == []
    scene.course.closed = None
    assert scene.course.close_if_complete(NOW + 1.0)
    assert scene.course.step == 2


def test_members_that_nobody_finished_in_time_are_asked_for_under_new_numbers() -> None:
    scene = Scene(1)
    scene.course.open_next(NOW)
    late = NOW + TIME_PER_STEP
    assert scene.course.tick(late) == [], "the only one is at work"
    scene.volunteers[1] = Volunteer(1)
    scene.volunteers[1].phase = Phase.READY
    assert len(of(Send, scene.course.tick(late))) == 2
    assert scene.course.open is not None
    assert scene.course.open.first_member == LIMIT
    assert scene.course.step_left_s(late) > TIME_PER_STEP


def test_step_that_is_given_up_takes_its_leases_along() -> None:
    scene = Scene(2)
    scene.course.open_next(NOW)
    scene.course.abandon()
    assert [(v.lease, v.cut_at) for v in scene.volunteers.values()] == [(None, 0), (None, 0)]
    assert scene.course.open is None


GRADIENTS = msgspec.structs.replace(
    STRATEGY, perturbation=Perturbation(0.0, 0, "nothing"), group_size=1, population_limit=2, local_steps=0
)


def test_slow_lines_are_told_of_and_lead_to_local_steps_of_every_machine() -> None:
    scene = Scene(2, strategy=GRADIENTS)
    for volunteer, n_machines, exchange_s in zip(scene.volunteers.values(), (1, 3), (0.32, 0.1), strict=True):
        volunteer.member_s, volunteer.n_machines = 0.01, n_machines
        volunteer.exchanges.extend([9.0, exchange_s, 9.0])
    effects = scene.course.open_next(NOW)
    assert of(Notice, effects) == [
        Notice("volunteers take 8 steps by themselves between two exchanges, since an exchange takes 0.1 s")
    ]
    assert scene.course.open is not None
    population = scene.course.open.population
    assert (population.n_local_steps, population.group_size, population.limit) == (8, 16, 4 * 16)
    scene.course.abandon()
    assert of(Notice, scene.course.open_next(NOW)) == []
    scene.course.abandon()
    for volunteer in scene.volunteers.values():
        volunteer.exchanges.append(1e-4)
    effects = scene.course.open_next(NOW)
    assert of(Notice, effects) == [Notice("each step is exchanged again, since an exchange takes 0.0001 s")]


def test_slow_lines_are_told_of_where_they_make_sums_coarser() -> None:
    scene = Scene(strategy=msgspec.structs.replace(GRADIENTS, local_steps=1, sum_bits=0))
    (volunteer,) = scene.volunteers.values()
    volunteer.member_s, volunteer.exchange_s = 0.01, 9.0
    volunteer.exchanges.append(0.1)
    told = "sums of gradients have 4 bits a parameter, since an exchange takes 0.1 s"
    assert of(Notice, scene.course.open_next(NOW)) == [Notice(told)]
    scene.course.abandon()
    assert of(Notice, scene.course.open_next(NOW)) == []
    scene.course.abandon()
    volunteer.exchanges.append(1e-4)
    told = "sums of gradients have 8 bits a parameter, since an exchange takes 0.0001 s"
    assert of(Notice, scene.course.open_next(NOW)) == [Notice(told)]


def test_a_number_of_local_steps_that_was_given_is_told_before_lines_are_known() -> None:
    scene = Scene(strategy=msgspec.structs.replace(GRADIENTS, local_steps=30))
    effects = scene.course.open_next(NOW)
    assert of(Notice, effects) == [Notice("volunteers take 30 steps by themselves between two exchanges")]


def test_each_step_of_a_run_that_is_fed_waits_for_its_block() -> None:
    scene = Scene(is_fed=True)
    assert scene.course.open_next(NOW) == []
    for step, block in enumerate((b"a" * 16, b"b" * 16)):
        smaller = msgspec.structs.replace(STRATEGY, population_limit=(step + 1) * GROUP)
        scene.steps.feed(msgspec.structs.replace(PLAN, blocks=(block,)), smaller)
        (assignment,) = [send.message for send in of(Send, scene.course.open_next(NOW))]
        assert isinstance(assignment, Assignment)
        assert (assignment.step, assignment.block, assignment.quota) == (step, block, (step + 1) * GROUP)
        scene.report(0, (step + 1) * GROUP)
        effects = scene.course.close_if_complete(NOW)
        assert of(ApplyUpdate, effects)[0].update.block == block
        assert not of(Send, effects)
        scene.course.closed = None
        assert scene.course.open_next(NOW) == []


def test_a_fed_step_that_nobody_answered_is_opened_again() -> None:
    scene = Scene(is_fed=True)
    scene.steps.feed(PLAN, STRATEGY)
    scene.course.open_next(NOW)
    scene.course.abandon()
    assert of(Send, scene.course.open_next(NOW))


def test_an_operator_is_told_the_news_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    close = scene.steps.close
    monkeypatch.setattr(
        scene.steps, "close", lambda step, now: msgspec.structs.replace(close(step, now), news="it stands")
    )
    scene.course.open_next(NOW)
    scene.report(0, LIMIT)
    assert of(Notice, scene.course.close_if_complete(NOW + 1.0)) == [Notice("it stands")]


def test_an_operator_is_told_when_the_run_begins_again() -> None:
    scene = Scene(strategy=msgspec.structs.replace(STRATEGY, attempts=Attempts(1, -1.0)))
    news: list[tuple[int, str]] = []
    for step in range(2 * BLOCK_STEPS):
        scene.course.open_next(NOW)
        scene.report(0, LIMIT)
        told = of(Notice, scene.course.close_if_complete(NOW + 1.0))
        scene.course.closed = None  # the replica has taken it
        news += [(step + 1, notice.text) for notice in told]
    assert news == [(50, news[0][1])]
    assert news[0][1].startswith("attempt 1 is far from target_loss")
