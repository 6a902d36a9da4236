import pytest

from fedlearn.coordination.effects import Dismiss, Joined, Left, Notice, Send, SendBlock, SendWeights
from fedlearn.coordination.people.authentication import ADMISSION_LIMIT_S, AuthenticationRules
from fedlearn.coordination.people.roster import Held
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.update import Update
from fedlearn.wire.messages import PROTOCOL_VERSION, Assignment, Challenge, Hello, Proof, Ready, Resync, Welcome
from fedlearn.wire.states import State
from tests.coordination.coordinator.scene import (
    BLOCKS,
    GROUP,
    LIMIT,
    PLAN,
    TIME_PER_STEP,
    WRONG_DIGEST,
    Scene,
    digest_of,
    of,
    parted,
    sent,
)
from tests.identities import ADA, BOB, NONCE, hello_of, named


def test_proof_is_answered_with_the_run_its_block_and_the_weights(scene: Scene) -> None:
    assert scene.greet(1) == [
        Send(1, Welcome(PLAN.run, PLAN.invitation)),
        SendBlock(1, BLOCKS[0]),
        SendWeights(1, may_replay=True),
    ]


def test_other_protocol_version_is_refused_with_the_reason(scene: Scene) -> None:
    scene.connect(1)
    effects = scene.say(1, Hello(PROTOCOL_VERSION + 1, "Ada", 8))
    (kind, reason) = parted(effects)[1]
    assert kind == "refused"
    assert f"expected {PROTOCOL_VERSION}, got {PROTOCOL_VERSION + 1}" in reason
    assert [type(effect) for effect in effects] == [Notice, Dismiss]
    assert scene.drop(1) == []


def test_nothing_of_the_run_is_said_before_the_proof(scene: Scene) -> None:
    assert scene.connect(1) == []
    assert scene.say(1, hello_of()) == [Send(1, Challenge(NONCE, needs_token=False))]
    refused = scene.say(1, Proof(bytes(64)))
    assert [type(effect) for effect in refused] == [Notice, Dismiss]
    assert parted(refused)[1][0] == "refused"
    assert scene.wait(1.0) == []


def test_unidentified_callers_hear_neither_updates_nor_how_the_run_ends(scene: Scene) -> None:
    scene.join(1)
    scene.connect(2)
    scene.connect(3)
    scene.say(3, hello_of())
    scene.report(1)
    scene.applied()
    scene.stop()
    assert {effect.peer for effect in scene.effects if isinstance(effect, Dismiss)} == {1}
    assert {effect.peer for effect in of(Send, scene.effects) if not isinstance(effect.message, Challenge)} == {1}


def test_caller_that_proves_nothing_is_sent_away_in_time(scene: Scene) -> None:
    scene.connect(1)
    scene.join(2)
    assert parted(scene.wait(ADMISSION_LIMIT_S - 0.1)) == {}
    assert [(peer, kind) for peer, (kind, _) in parted(scene.wait(0.1)).items()] == [(1, "try_again")]
    assert parted(scene.wait(ADMISSION_LIMIT_S)) == {}


def test_caller_too_many_is_turned_away_at_once() -> None:
    scene = Scene(rules=AuthenticationRules(connections_per_address=1))
    scene.greet(1)
    assert [(peer, kind) for peer, (kind, _) in parted(scene.connect(2)).items()] == [(2, "try_again")]
    assert scene.drop(2) == []
    scene.drop(1)
    assert parted(scene.greet(3)) == {}


def test_flood_does_not_fill_the_terminal() -> None:
    scene = Scene(rules=AuthenticationRules(joins_per_minute=1))
    scene.greet(1)
    scene.connect(2)
    assert [type(effect) for effect in scene.say(2, hello_of())] == [Dismiss]


def test_volunteer_is_known_by_the_identity_that_it_proved() -> None:
    local = BOB.identity.public_key.hex()
    scene = Scene(rules=AuthenticationRules(local=local))
    scene.greet(1, credentials=ADA)
    scene.greet(2, credentials=BOB)
    known = {v.peer: (v.reputation.identity, v.reputation.is_local) for v in scene.coordinator._volunteers.values()}
    assert known == {1: (ADA.identity.public_key.hex(), False), 2: (local, True)}
    joins = [scene.say(peer, Ready(0, digest_of(0)))[0] for peer in (1, 2)]
    assert [join.is_local for join in joins if isinstance(join, Joined)] == [False, True]


def test_volunteer_without_a_name_is_called_by_its_number(scene: Scene) -> None:
    scene.greet(5, name="")
    assert scene.say(5, Ready(0, digest_of(0)))[0] == Joined("volunteer 5")


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
    assert Joined("volunteer 2") in effects
    assert sent(Assignment, effects) == []
    effects = scene.report(1)  # the step is complete without the joiner
    assert [update.step for update in sent(Update, effects, peer=2)] == [0]
    assert {send.peer for send in of(Send, effects) if isinstance(send.message, Assignment)} == {1, 2}


def test_weights_wait_while_the_servers_replica_is_between_two_steps(scene: Scene) -> None:
    scene.join(1)
    scene.report(1)
    effects = scene.greet(2)
    assert [type(send.message) for send in of(Send, effects)] == [Welcome]
    assert of(SendWeights, effects) == []
    assert of(SendWeights, scene.applied()) == [SendWeights(2, may_replay=True)]
    assert sent(Assignment, scene.say(2, Ready(1, digest_of(1)))) == []
    assert sent(Assignment, scene.report(1), peer=2)[0].step == 2


def test_joiner_gets_every_update_after_its_weights_and_none_before(scene: Scene) -> None:
    scene.join(1)
    scene.report(1)
    scene.greet(2)  # waits for its weights
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
    assert of(SendWeights, effects) == [SendWeights(1, may_replay=False)]
    assert sent(Assignment, effects) == []
    assert sent(Assignment, scene.say(1, Ready(0, digest_of(0))), peer=1)


def test_joiner_on_a_slow_line_may_take_its_time(scene: Scene) -> None:
    scene.join(1)
    scene.greet(2)
    for _ in range(300):
        scene.report(1)
        scene.applied()
    assert Joined("volunteer 2") in scene.say(2, Ready(0, digest_of(0)))


def test_joiner_may_be_brought_to_the_servers_step_by_the_updates_before_it() -> None:
    scene = Scene(replays=True)
    scene.join(1)
    for _ in range(3):
        scene.report(1)
        scene.applied()
    effects = scene.greet(2)
    assert of(SendWeights, effects) == [SendWeights(2, may_replay=True)]
    assert scene.state_of(2) is State.SYNCING
    scene.report(1)
    assert Joined("volunteer 2") in scene.say(2, Ready(3, digest_of(3)))
    scene.applied()
    scene.report(1)
    assert scene.assignments[2].step == 5


def test_volunteer_with_another_start_is_sent_the_weights_themselves() -> None:
    scene = Scene(replays=True)
    scene.greet(1)
    assert of(SendWeights, scene.say(1, Ready(0, WRONG_DIGEST))) == [SendWeights(1, may_replay=False)]
    assert sent(Assignment, scene.say(1, Ready(0, digest_of(0))), peer=1)


def test_what_a_volunteer_holds_is_believed_until_it_has_shown_another_digest(scene: Scene) -> None:
    held = Held(7, digest_of(7))
    effects = scene.greet(1, held=held)
    assert of(SendWeights, effects) == [SendWeights(1, may_replay=True, held=held)]
    effects = scene.say(1, Ready(0, WRONG_DIGEST))
    assert of(SendWeights, effects) == [SendWeights(1, may_replay=False, held=None)]


def test_who_is_no_longer_listed_is_sent_away_and_its_results_do_not_count(pair: Scene) -> None:
    pair.report(2)
    pair.connect(3)
    effects = pair.allow(1)
    (kind, reason) = parted(effects)[2]
    assert of(Left, effects) == [Left("volunteer 2", f"it was sent away: {reason}")]
    assert kind == "refused"
    assert "expected one that the server's owner listed" in reason
    (update,) = sent(Update, pair.report(1), peer=1)
    assert update.n_members == LIMIT // 2
    assert not parted(pair.effects).keys() & {1, 3}


def test_step_that_waits_for_nobody_who_is_listed_closes(pair: Scene) -> None:
    pair.report(1)
    assert sent(Update, pair.allow(1), peer=1)


def test_who_is_listed_later_comes_in_then() -> None:
    scene = Scene(rules=AuthenticationRules(allowed=frozenset()))
    assert parted(scene.greet(1)).keys() == {1}
    scene.allow(1)
    scene.join(1)
    assert 1 in scene.assignments


def test_own_volunteers_need_no_list() -> None:
    own = named("volunteer 1").identity.public_key.hex()
    scene = Scene(rules=AuthenticationRules(local=own))
    scene.join(1)
    assert parted(scene.allow()) == {}


@pytest.mark.parametrize(("lent", "is_let_in"), [(0, True), (1_999_999, False), (2_000_000, True)])
def test_who_lends_less_than_the_whole_model_takes_where_nobody_holds_a_part_is_told_what_to_do(
    lent: int, is_let_in: bool
) -> None:
    scene = Scene(replica_bytes=2_000_000, undivided="--measure losses")
    scene.greet(1, memory_bytes=lent)
    assert (1 in scene.followers) == is_let_in
    if not is_let_in:
        kind, reason = parted(scene.effects)[1]
        assert kind == "refused"
        assert not any(isinstance(e.message, Welcome) for e in of(Send, scene.effects))  # it would build for nothing
        assert "expected 2 MB or more" in reason
        assert "got 2 MB" in reason
        assert "--max-memory" in reason
        assert "the server started with --measure losses" in reason
        assert any("volunteer 1 was sent away: memory: " in notice.text for notice in of(Notice, scene.effects))
