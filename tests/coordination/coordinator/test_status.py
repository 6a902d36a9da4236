from random import Random

import msgspec
import pytest

from fedlearn.coordination.effects import Recompute
from fedlearn.coordination.status import Earnings, RunStatus, StepStatus, VolunteerStatus
from fedlearn.wire.messages import Ready
from tests.coordination.coordinator.scene import (
    GROUP,
    HALF,
    LIMIT,
    PLAN,
    STRATEGY,
    TIME_PER_STEP,
    Scene,
    digest_of,
    of,
)
from tests.identities import named


def status_of(scene: Scene) -> RunStatus:
    return scene.coordinator.run_status(scene.now)


def test_run_that_nobody_works_for_waits() -> None:
    scene = Scene(steps=9, step=4)
    expected = RunStatus(
        run="7",
        state="waiting",
        step=4,
        steps=9,
        run_left_s=None,
        members_per_s=0.0,
        open_step=None,
        volunteers=(),
    )
    assert status_of(scene) == expected
    scene.connect(1)
    assert status_of(scene) == expected
    scene.greet(2)
    assert status_of(scene).state == "waiting"


def test_volunteer_is_shown_from_its_proof_on_by_the_beginning_of_its_identity() -> None:
    scene = Scene()
    scene.greet(1, name="Ada")
    identity = named("Ada").identity.public_key.hex()
    assert status_of(scene).volunteers == (
        VolunteerStatus(
            name="Ada",
            identity=identity[:16],
            threads=1,
            is_local=False,
            phase="syncing",
            members_per_s=None,
            share=0.0,
            members=0,
            exchange_s=None,
            trust="stranger",
            caught=0,
            digest="unknown",
            credit=Earnings(0, 0, 0, 0, 0),
        ),
    )
    scene.say(1, Ready(0, digest_of(0)))
    status = status_of(scene)
    assert status.state == "running"
    (ada,) = status.volunteers
    assert (ada.phase, ada.digest, ada.share) == ("ready", "equal", 1.0)
    assert identity not in msgspec.json.encode(status).decode()


def test_open_step_and_everybodys_part_in_it_are_shown(pair: Scene) -> None:
    pair.now += 2.0
    pair.report(1, GROUP)
    status = status_of(pair)
    assert (status.step, status.state, status.members_per_s) == (1, "running", LIMIT / 1.0)
    assert status.open_step == StepStatus(TIME_PER_STEP - 2.0, GROUP, LIMIT)
    first, second = status.volunteers
    assert (first.share, first.members, first.members_per_s) == (HALF / LIMIT, GROUP, LIMIT / 1.0)
    assert (second.share, second.members, second.members_per_s) == (HALF / LIMIT, 0, None)
    assert first.credit == Earnings(LIMIT, LIMIT, 1, 0, 0)


def test_nothing_is_done_where_everybody_has_left(pair: Scene) -> None:
    pair.drop(1)
    pair.drop(2)
    status = status_of(pair)
    assert (status.state, status.step, status.members_per_s, status.volunteers) == ("waiting", 1, 0.0, ())


def test_exchange_and_time_left_are_shown() -> None:
    scene = Scene(duration_s=5.0)
    scene.join(1)
    scene.now += 3.0
    scene.report(1, busy_s=2.5)
    scene.applied()
    status = status_of(scene)
    assert status.run_left_s == 2.0
    assert status.volunteers[0].exchange_s == pytest.approx(0.5)


def test_volunteer_that_drifted_is_shown_as_such_until_it_has_shown_better(pair: Scene) -> None:
    pair.drift(1)
    assert [volunteer.digest for volunteer in status_of(pair).volunteers] == ["drifted", "equal"]


def test_false_results_and_trust_are_shown() -> None:
    scene = Scene(lottery=Random(0), audit=1.0)
    scene.join(1)
    (drawn, *_) = of(Recompute, scene.report(1, GROUP))
    scene.recomputed(drawn.claim, drawn.claim.losses + 50.0, drawn.claim.losses + 50.0)
    (liar,) = status_of(scene).volunteers
    assert (liar.trust, liar.caught) == ("stranger", 1)
    honest = Scene(lottery=Random(0), audit=1.0)
    honest.join(1)
    for _ in range(8):
        for recompute in of(Recompute, honest.report(1, GROUP)):
            honest.recomputed(recompute.claim, recompute.claim.losses)
    (volunteer,) = status_of(honest).volunteers
    assert (volunteer.trust, volunteer.caught) == ("proven", 0)


def test_status_travels_as_json_and_back(pair: Scene) -> None:
    pair.report(1, GROUP)
    status = status_of(pair)
    assert msgspec.json.decode(msgspec.json.encode(status), type=RunStatus) == status
    other_format = msgspec.json.encode(status).replace(b'"format":1', b'"format":2')
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(other_format, type=RunStatus)


def test_time_that_is_left_is_that_of_the_newest_duration() -> None:
    scene = Scene(duration_s=5.0)
    scene.operator.change(msgspec.structs.replace(PLAN, duration_s=50.0), STRATEGY, scene.now)
    status = status_of(scene)
    assert (status.duration_s, status.run_left_s) == (50.0, 50.0)
