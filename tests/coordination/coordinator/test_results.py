from typing import Any

import numpy as np
import pytest

from fedlearn.coordination.effects import ApplyUpdate, Dismiss
from fedlearn.es.update import Update
from fedlearn.wire.messages import Result, Resync
from tests.coordination.coordinator.scene import (
    GROUP,
    HALF,
    LIMIT,
    TIME_PER_STEP,
    WRONG_DIGEST,
    Scene,
    digest_of,
    of,
    parted,
    sent,
)


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
    assert not of(Dismiss, pair.effects)


def test_result_of_a_population_that_was_given_up_is_dropped_without_harm(scene: Scene) -> None:
    scene.join(1)
    scene.join(2)
    old = scene.assignments[1]
    scene.wait(TIME_PER_STEP)
    new = scene.assignments[1]
    assert (new.step, new.first_member) == (old.step, old.first_member + LIMIT)
    late = Result(old.step, old.first_member, np.zeros(GROUP, dtype=np.float32), digest_of(old.step))
    assert scene.say(1, late) == []
    scene.report(2)
    (update,) = sent(Update, scene.report(1), peer=1)
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
