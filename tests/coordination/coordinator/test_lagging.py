"""Volunteers whose line is slower than the run."""

import msgspec
import pytest

from fedlearn.coordination.effects import Joined, Notice, SendWeights
from fedlearn.coordination.steps.closing import EXCHANGES
from fedlearn.es.update import Update
from fedlearn.wire.messages import Assignment, Ready, Resync
from tests.coordination.coordinator.scene import GROUP, HALF, LIMIT, STRATEGY, TIME_PER_STEP, Scene, digest_of, of, sent

EXCHANGE_S = {1: 0.02, 2: 0.2, 3: 0.4}
"""Of each volunteer."""


def test_whoever_falls_behind_is_sent_the_weights_once(pair: Scene) -> None:
    effects = pair.fall_behind(1)
    assert len(sent(Resync, effects, peer=1)) == 1
    assert of(SendWeights, effects) == [SendWeights(1, may_replay=False)]
    assert pair.fall_behind(1) == []
    pair.say(1, Ready(1, digest_of(1)))
    assert len(sent(Resync, pair.fall_behind(1), peer=1)) == 1


def test_step_does_not_wait_for_whoever_fell_behind_and_counts_what_it_sent(pair: Scene) -> None:
    pair.report(1, GROUP)
    assert sent(Update, pair.fall_behind(1)) == []
    (update,) = sent(Update, pair.report(2), peer=2)
    assert update.spans == ((0, GROUP), (HALF, HALF))


def test_the_last_one_missing_closes_the_step_by_falling_behind(pair: Scene) -> None:
    pair.report(2)
    effects = pair.fall_behind(1)
    assert [update.step for update in sent(Update, effects, peer=2)] == [1]
    assert [update.step for update in sent(Update, effects, peer=1)] == [1]  # behind the weights before it


def test_whoever_fell_behind_while_a_step_is_taken_is_sent_the_weights_after_it(pair: Scene) -> None:
    pair.report(1)
    pair.report(2)
    effects = pair.fall_behind(1)
    assert of(SendWeights, effects) == []
    assert of(SendWeights, pair.applied()) == [SendWeights(1, may_replay=False)]
    assert sent(Assignment, pair.say(1, Ready(2, digest_of(2)))) == []  # the step is open already
    pair.report(2)
    assert pair.assignments[1].step == 3


def test_falling_behind_is_no_drift_and_no_joining(pair: Scene) -> None:
    for _ in range(10):
        assert of(Notice, pair.fall_behind(1)) == []
        assert of(Joined, pair.say(1, Ready(pair.step, digest_of(pair.step)))) == []
        pair.report(2)
        pair.applied()
    pair.report(1)
    pair.report(2)
    assert pair.journal[-1].spans == ((0, LIMIT),)


def test_whoever_is_gone_or_has_no_weights_cannot_fall_behind(pair: Scene) -> None:
    pair.drop(1)
    assert pair.fall_behind(1) == []
    pair.greet(3)
    assert pair.fall_behind(3) == []
    pair.stop()
    assert pair.fall_behind(2) == []


def test_step_lasts_ten_times_what_exchanging_takes_whatever_the_slowest_of_three_needs() -> None:
    scene = Scene(strategy=msgspec.structs.replace(STRATEGY, max_population=1024))
    for peer in (1, 2, 3):
        scene.join(peer)
    scene.now += 1.0
    scene.report(1)
    scene.applied()
    populations = []
    for _ in range(40):
        populations.append(sum(lease.quota for lease in scene.assignments.values()))
        started = scene.now
        ends = {peer: scene.assignments[peer].quota / 128 + exchange_s for peer, exchange_s in EXCHANGE_S.items()}
        for peer in sorted(ends, key=lambda peer: ends[peer]):
            scene.now = started + ends[peer]
            scene.report(peer, busy_s=ends[peer] - EXCHANGE_S[peer])
        scene.applied()
    assert populations[0] == LIMIT
    assert scene.now - started == pytest.approx(EXCHANGES * EXCHANGE_S[2], rel=0.1)
    assert scene.assignments[3].quota < scene.assignments[2].quota < scene.assignments[1].quota
    shares = [scene.assignments[peer].quota / 128 + EXCHANGE_S[peer] for peer in (1, 2, 3)]
    assert max(shares) < 1.1 * min(shares), "each gets what it does in the time that remains"


def test_step_lasts_no_longer_for_exchanges_than_half_of_what_it_may() -> None:
    scene = Scene(strategy=msgspec.structs.replace(STRATEGY, max_population=10**6))
    scene.join(1)
    for _ in range(40):
        started, lease_s = scene.now, scene.assignments[1].quota / 128
        scene.now += lease_s + 3.0
        scene.report(1, busy_s=lease_s)
        scene.applied()
    assert scene.now - started == pytest.approx(TIME_PER_STEP / 2, rel=0.1)


@pytest.mark.parametrize("is_stale", [False, True])
def test_result_of_another_step_says_nothing_about_the_line(is_stale: bool) -> None:
    scene = Scene(strategy=msgspec.structs.replace(STRATEGY, max_population=1024))
    scene.join(1)
    for _ in range(3):
        scene.now += 1.0
        if is_stale:
            scene.report(1, 0, step=99, busy_s=1e-9)
        scene.report(1, busy_s=1.0)
        scene.applied()
    assert scene.assignments[1].quota == LIMIT
