from itertools import pairwise

from fedlearn.coordination.effects import Dismiss, Send
from fedlearn.coordination.people.telling import TELL_S
from fedlearn.wire.messages import Credit, News, Ready
from tests.coordination.coordinator.scene import LIMIT, Scene, digest_of, sent

NEWS = News(steps=0, left_s=None, volunteers=1, loss=(LIMIT - 1) / 2)
"""Of a run without an end, whose losses are the numbers of the members."""


def test_volunteer_at_work_is_told_its_credit_now_and_then_and_before_the_farewell() -> None:
    scene = Scene(work_per_member=2)
    scene.join(1)
    told = []
    for _ in range(30):
        scene.now += 1.0
        scene.report(1)
        told += [(scene.now, credit) for credit in sent(Credit, scene.applied())]
    assert told[-1][1].news == NEWS
    assert [credit.members for _, credit in told] == [LIMIT, 11 * LIMIT, 21 * LIMIT]
    assert [credit.work for _, credit in told] == [2 * LIMIT, 22 * LIMIT, 42 * LIMIT]
    assert {later - before for (before, _), (later, _) in pairwise(told)} == {TELL_S}
    scene.report(1)
    scene.applied()
    effects = [effect for effect in scene.stop() if isinstance(effect, Send | Dismiss)]
    assert [type(effect) for effect in effects] == [Send, Dismiss]
    assert sent(Credit, effects) == [Credit(31 * LIMIT, 62 * LIMIT, 30, 0, 0)]


def test_who_comes_back_is_told_what_its_identity_had_earned_before() -> None:
    scene = Scene()
    scene.join(1)
    scene.now += 1.0
    scene.report(1)
    scene.applied()
    scene.leave(1)
    scene.greet(2, name="volunteer 1")
    scene.say(2, Ready(scene.step, digest_of(scene.step)))
    assert sent(Credit, scene.stop()) == [Credit(LIMIT, LIMIT, 1, 0, 0)]
