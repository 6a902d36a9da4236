"""Steps that somebody else closes, and weights that somebody else replaces."""

import numpy as np

from fedlearn.wire.messages import Ready, Result, Resync
from tests.coordination.coordinator.scene import GROUP, WRONG_DIGEST, Scene, digest_of, parted, sent


def late_result(first_member: int) -> Result:
    return Result(0, first_member, np.zeros(GROUP, np.float32), digest_of(0))


def test_result_of_a_lease_that_was_given_up_is_ignored() -> None:
    scene = Scene()
    scene.join(1)
    scene.join(2)
    scene.coordinator.loop.abandon()
    scene._perform(scene.coordinator.loop.open_next(scene.now))
    assert scene.say(1, late_result(4 * GROUP)) == []
    assert parted(scene.say(2, late_result(0)))[2][0] == "refused"
    assert [volunteer.peer for volunteer in scene.coordinator.roster.volunteers.values()] == [1]


def test_who_was_on_the_way_to_weights_that_were_replaced_is_sent_others() -> None:
    scene = Scene()
    scene.join(1)
    scene.greet(2)
    replaced = scene._perform(scene.coordinator.moved(0, WRONG_DIGEST, scene.now))
    assert [message.reason for message in sent(Resync, replaced, 1)] == ["the weights were replaced"]
    assert sent(Resync, replaced, 2) == []
    assert len(sent(Resync, scene.say(2, Ready(0, digest_of(0))), 2)) == 1
