from random import Random

import msgspec
import pytest

from fedlearn.coordination.effects import EndRun, Notice, Recompute, SaveCheckpoint
from fedlearn.coordination.people.authentication import AuthenticationRules
from fedlearn.es.optimizers import Adam
from fedlearn.es.update import elapsed_s_after
from fedlearn.wire.messages import Assignment
from tests.coordination.coordinator.scene import (
    CHECKPOINT_TIME,
    HALF,
    LIMIT,
    PLAN,
    STRATEGY,
    TIME_PER_STEP,
    Scene,
    identity_of,
    of,
    parted,
    sent,
)


def notices(effects: object) -> list[str]:
    assert isinstance(effects, list)
    return [notice.text for notice in of(Notice, effects)]


def both_at_work() -> Scene:
    """In the second step, of which each has half."""
    scene = Scene(proven=(1, 2))
    scene.join(1)
    scene.join(2)
    scene.report(1)
    scene.applied()
    assert sorted(scene.assignments) == [1, 2]
    return scene


def test_run_is_not_still_before_the_open_step_has_ended() -> None:
    scene = both_at_work()
    scene.pause()
    assert not scene.operator.is_still


def test_paused_run_ends_the_open_step_and_opens_none() -> None:
    scene = both_at_work()
    assert notices(scene.pause()) == ["Ada paused the run"]
    scene.report(1)
    closing = scene.report(2)
    assert len(scene.journal) == 2
    stillness = [scene.operator.is_still]
    assert sent(Assignment, [*closing, *scene.applied(), *scene.wait(3600.0)]) == []
    assert [*stillness, scene.operator.is_still] == [False, True]
    assert parted(scene.effects) == {}


def test_nothing_of_the_open_step_is_lost_to_a_pause() -> None:
    scene = both_at_work()
    scene.pause()
    n_members = scene.remaining(1)
    scene.report(1)
    scene.wait(TIME_PER_STEP)
    scene.applied()
    assert [update.n_members for update in scene.journal] == [LIMIT, n_members]
    assert scene.operator.is_still


def test_step_in_which_nobody_finished_anything_is_given_up_in_a_pause() -> None:
    scene = Scene()
    scene.join(1)
    scene.join(2)
    scene.drop(2)
    scene.pause()
    scene.drop(1)
    assert scene.operator.is_still
    assert scene.journal == []


def test_who_joins_in_a_pause_waits_and_takes_part_after_it() -> None:
    scene = Scene()
    scene.pause()
    assert sent(Assignment, scene.join(1)) == []
    assert scene.coordinator.run_status(scene.now).state == "paused"
    assert scene.coordinator.run_status(scene.now).reason == "Ada paused it"
    going_on = scene.go_on()
    assert notices(going_on) == ["Ada let the run go on"]
    assert [assignment.quota for assignment in sent(Assignment, going_on)] == [LIMIT]
    assert scene.coordinator.run_status(scene.now).state == "running"


def test_no_training_time_passes_in_a_pause() -> None:
    scene = Scene(duration_s=100.0)
    scene.join(1)
    scene.now += 2.0
    scene.pause()
    scene.report(1)
    scene.applied()
    scene.wait(1000.0)
    scene.go_on()
    scene.now += 3.0
    scene.report(1)
    scene.applied()
    assert elapsed_s_after(scene.journal[-1]) == pytest.approx(5.0)
    assert not of(EndRun, scene.effects)


def test_paused_run_can_be_stopped_and_then_opens_nothing() -> None:
    scene = Scene()
    scene.join(1)
    scene.pause()
    assert of(EndRun, scene.stop()) == [EndRun("Ctrl-C")]
    assert sent(Assignment, scene.go_on()) == []


@pytest.mark.parametrize("who", ["volunteer 1", identity_of(1)[:4], identity_of(1)[:6].upper(), identity_of(1)])
def test_who_is_sent_away_is_told_and_does_not_come_back(who: str) -> None:
    scene = both_at_work()
    scene.report(2)
    away = scene.send_away(who)
    ((peer, (kind, reason)),) = parted(away).items()
    assert (peer, kind) == (1, "refused")
    assert "the server's owner sent it away" in reason
    assert notices(away)[0] == f"Ada sends {who} away"
    assert len(scene.journal) == 2, "the step waited for nobody else"
    scene.applied()
    assert parted(scene.greet(3, name="volunteer 1"))[3] == (kind, reason)
    assert 4 not in parted(scene.join(4))


def test_all_connections_of_an_identity_are_sent_away() -> None:
    scene = Scene()
    for peer in (1, 2):
        scene.greet(peer, name="volunteer 1")
    assert sorted(parted(scene.send_away("volunteer 1"))) == [1, 2]


@pytest.mark.parametrize(
    ("who", "problem"),
    [
        ("volunteer 9", r"expected the name or identity of one who is there, got 'volunteer 9'; there: volunteer 1$"),
        (identity_of(1)[:3], "expected the name or identity of one who is there"),
        ("", "expected the name or identity of one who is there"),
    ],
)
def test_who_is_not_there_is_nobody_to_be_sent_away(who: str, problem: str) -> None:
    scene = Scene()
    scene.join(1)
    scene.connect(7)
    with pytest.raises(ValueError, match=problem):
        scene.send_away(who)
    assert parted(scene.effects) == {}


def test_name_that_several_have_sends_nobody_away() -> None:
    scene = Scene()
    scene.greet(1, name="twin")
    scene.greet(2, name="twin")
    assert sorted(parted(scene.send_away("twin"))) == [1, 2], "one identity"
    scene = Scene()
    scene.join(1)
    volunteers = list(scene.coordinator.roster.volunteers.values())
    scene.join(2)
    for volunteer in scene.coordinator.roster.volunteers.values():
        volunteer.name = "twin"
    assert len(volunteers) == 1
    with pytest.raises(ValueError, match="expected one, 'twin' are several; give the first digits of an identity"):
        scene.send_away("twin")


def test_servers_own_volunteer_is_not_sent_away() -> None:
    scene = Scene(rules=AuthenticationRules(local=identity_of(1)))
    scene.join(1)
    with pytest.raises(
        ValueError, match="expected one from another machine, 'volunteer 1' is the server's own; resume with fewer"
    ):
        scene.send_away("volunteer 1")


def test_changed_settings_hold_for_the_steps_that_are_opened_from_now_on() -> None:
    scene = Scene()
    scene.join(1)
    strategy = msgspec.structs.replace(
        STRATEGY,
        population_limit=HALF,
        optimizer=Adam(0.25),
        weight_decay=0.5,
    )
    plan = msgspec.structs.replace(PLAN, time_per_step=3.0, steps=2, checkpoint_time=1.0)
    scene.operator.change(plan, strategy, scene.now)
    scene.report(1)
    scene.now += 2.0
    applied = scene.applied()
    assert of(SaveCheckpoint, applied), "it is due earlier"
    assert scene.assignments[1].quota == HALF
    assert scene.assignments[1].time_left_s == pytest.approx(3.0)
    scene.report(1)
    assert [(update.optimizer.learning_rate, update.weight_decay) for update in scene.journal] == [
        (0.01, 0),
        (0.25, 0.5),
    ]
    assert of(EndRun, scene.applied()) == [EndRun("all 2 steps are done")]


@pytest.mark.parametrize(("before", "after", "n_checked"), [(0.0, 1.0, [0, 1]), (1.0, 0.0, [1, 0])])
def test_audits_begin_and_end_with_a_step(before: float, after: float, n_checked: list[int]) -> None:
    scene = Scene(audit=before, lottery=Random(1))
    scene.join(1)
    found = []
    for _ in range(2):
        scene.operator.change(msgspec.structs.replace(PLAN, audit=after), STRATEGY, scene.now)
        scene.now += 1.0
        claims = [effect.claim for effect in of(Recompute, scene.report(1))]
        found.append(min(len(claims), 1))
        for claim in claims:
            scene.recomputed(claim, claim.losses)
        scene.applied()
    assert found == n_checked
    assert len(scene.journal) == 2, "nothing waits for a verdict that does not come"


def test_later_checkpoints_do_not_move_the_one_that_is_due() -> None:
    scene = Scene()
    scene.join(1)
    scene.operator.change(msgspec.structs.replace(PLAN, checkpoint_time=1e6), STRATEGY, scene.now)
    scene.now += CHECKPOINT_TIME
    scene.report(1)
    assert of(SaveCheckpoint, scene.applied())


def test_run_is_at_work_while_it_has_volunteers_and_is_not_paused() -> None:
    scene = Scene()
    found = [scene.operator.is_at_work]
    scene.join(1)
    found.append(scene.operator.is_at_work)
    scene.operator.pause("Ada")
    found.append(scene.operator.is_at_work)
    assert found == [False, True, False]


def test_run_that_is_finished_takes_the_open_step_and_no_other() -> None:
    scene = both_at_work()
    assert scene.operator.next_end == 2
    scene.operator.change(msgspec.structs.replace(PLAN, steps=scene.operator.next_end), STRATEGY, scene.now)
    assert of(EndRun, scene.wait(1.0)) == []
    scene.report(1)
    scene.report(2)
    assert [update.step for update in scene.journal] == [0, 1]
    assert scene.operator.next_end == 2, "the step is over, though it is not applied"
    effects = scene.applied()
    assert of(EndRun, effects) == [EndRun("all 2 steps are done")]
    assert {kind for kind, _ in parted(effects).values()} == {"run_ended"}
