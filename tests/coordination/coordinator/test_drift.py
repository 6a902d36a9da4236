from fedlearn.coordination.effects import Notice, Send, SendBlock, SendWeights
from fedlearn.coordination.people.membership import MAX_RESYNCS
from fedlearn.es.update import Update
from fedlearn.wire.messages import Assignment, Ready, Resync
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


def test_drifted_volunteer_is_resynchronised_and_its_results_do_not_count(pair: Scene) -> None:
    pair.report(1, GROUP)
    effects = pair.report(1, GROUP, digest=WRONG_DIGEST)
    assert "volunteer 1 drifted" in of(Notice, effects)[0].text
    kinds = [type(e.message) if isinstance(e, Send) else type(e) for e in effects]
    assert kinds == [Notice, Resync, SendBlock, SendWeights]
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


def test_volunteer_that_drifts_too_often_in_a_row_is_sent_away(pair: Scene) -> None:
    for _ in range(MAX_RESYNCS):
        assert parted(pair.drift(1)) == {}
        pair.report(2)
        pair.applied()
    kind, reason = parted(pair.drift(1))[1]
    assert kind == "refused"
    assert f"{MAX_RESYNCS + 1} times in a row" in reason
    pair.report(2)
    pair.applied()
    assert pair.assignments[2].quota == LIMIT


def test_drifts_with_good_steps_in_between_are_forgiven(pair: Scene) -> None:
    for _ in range(2 * MAX_RESYNCS):
        assert parted(pair.drift(1)) == {}
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
        assert parted(scene.drift(1)) == {}
    scene.report(1)
    scene.applied()
    assert parted(scene.drift(1))[1][0] == "refused"
