"""A machine that holds a part of the model."""

import numpy as np
import pytest

from fedlearn.coordination.effects import Apply, Load, Notice, Reply, TakeSeat
from fedlearn.coordination.work.worker import Worker
from fedlearn.es.trials import TrialResults
from fedlearn.tasks.parts.computation import Pass, Passed
from fedlearn.wire.messages import Activations, Proof, Ready, Result, Resync, Seat, Taken
from tests.coordination.work.scene import (
    DATA,
    FIRST,
    GROUP,
    WELCOME,
    Scene,
    assignment,
    digest_of,
    of,
    replies,
    snapshot,
    update,
)
from tests.identities import ADA, CHALLENGE, NONCE


def seat(place: int, *, seats: int = 3) -> Seat:
    return Seat(7, tuple(range(1, seats)), 1, place, "float32", GROUP, 2, 4, 0)


def seated(place: int) -> Scene:
    """Holds its part at step 4."""
    scene = Scene()
    scene.hear(CHALLENGE, WELCOME, seat(place), DATA, snapshot(4))
    scene.compute_all()
    return scene


def finish(scene: Scene, result: Passed) -> list[Reply]:
    """The members under way went through."""
    assert isinstance(scene.under_way, Pass)
    scene.under_way = None
    return of(Reply, scene.worker.computed(result, scene.now))


def test_what_a_machine_lends_travels_with_its_proof() -> None:
    worker = Worker(name="Ada", threads=1, credentials=ADA, memory_bytes=2**31)
    worker.start(nonce=NONCE)
    (proof,) = replies(Proof, worker.received(CHALLENGE, 1.0))
    assert proof.memory_bytes == 2**31


def test_a_seat_is_taken_before_its_weights_are_loaded() -> None:
    scene = Scene()
    effects = scene.hear(CHALLENGE, WELCOME)
    scene.compute_all()
    effects = scene.hear(seat(1), DATA, snapshot(4))
    assert of(Notice, effects) == [Notice("this machine holds part 2 of 3 of the model, in crew 7")]
    assert of(TakeSeat, effects) == [TakeSeat(seat(1))]
    effects = scene.compute_all()
    assert of(Load, effects)
    assert replies(Ready, effects) == [Ready(4, digest_of(4))]


def test_the_first_seat_begins_with_its_lease_and_goes_on_when_there_is_room() -> None:
    scene = seated(0)
    scene.hear(assignment(4))
    (said,) = finish(scene, Passed(b"made"))
    assert said.message == Activations(4, FIRST, GROUP, digest_of(4), b"made")


def test_the_others_wait_for_the_seat_before() -> None:
    scene = seated(1)
    scene.hear(assignment(4))
    assert scene.trials is None
    (order,) = of(Pass, scene.hear(Activations(4, FIRST, GROUP, digest_of(9), b"given")))
    assert order.payload == b"given"


def test_room_is_made_by_what_is_taken() -> None:
    scene = seated(0)
    scene.hear(assignment(4))
    for _ in range(2):
        scene.worker.computed(Passed(b"made"), scene.now)
    scene.under_way = None
    effects = scene.worker.received(Taken(4, FIRST + GROUP), scene.now)
    (order,) = of(Pass, effects)
    assert order.trials.first_member == FIRST + 2 * GROUP


def test_the_last_seat_reports_losses() -> None:
    scene = seated(2)
    scene.hear(assignment(4), Activations(4, FIRST, GROUP, digest_of(9), b"given"))
    (said,) = finish(scene, Passed(results=TrialResults(np.ones(GROUP, np.float32))))
    assert isinstance(said.message, Result)
    assert (said.message.first_member, said.message.digest) == (FIRST, digest_of(4))


def test_an_update_ends_the_lease_and_is_taken() -> None:
    scene = seated(1)
    scene.hear(assignment(4), Activations(4, FIRST, GROUP, digest_of(9), b"given"))
    scene.hear(Activations(4, FIRST + GROUP, GROUP, digest_of(9), b"given"), update(4))
    assert scene.worker.activations_waiting_bytes == 0
    finish(scene, Passed(b"made"))
    assert isinstance(scene.worker._under_way, tuple)
    assert isinstance(scene.worker._under_way[0], Apply)


def test_activations_that_wait_are_counted_apart_from_orders() -> None:
    scene = seated(1)
    scene.hear(assignment(4), *[Activations(4, FIRST, GROUP, digest_of(9), bytes(1000))] * 3)
    assert (scene.worker.activations_waiting_bytes, scene.worker.bytes_waiting) == (2000, 0)


@pytest.mark.parametrize("end", [Resync("it takes another seat"), update(4)])
def test_nothing_is_left_of_a_lease_that_ended(end: Resync) -> None:
    scene = seated(1)
    scene.hear(assignment(4), *[Activations(4, FIRST, GROUP, digest_of(9), bytes(1000))] * 2, end)
    assert scene.worker.activations_waiting_bytes == 0


def test_a_resting_seat_begins_nothing() -> None:
    scene = seated(0)
    scene.worker.rest(scene.now + 5.0)
    scene.hear(assignment(4))
    assert scene.under_way is None
    scene.now += 5.0
    assert of(Pass, scene.worker.wake(scene.now))


def test_another_seat_takes_the_place_of_the_one_before() -> None:
    scene = seated(1)
    effects = scene.hear(Resync("it takes another seat"), seat(0), snapshot(6))
    effects += scene.compute_all()
    assert replies(Ready, effects) == [Ready(6, digest_of(6))]
    scene.hear(assignment(6))
    assert isinstance(scene.under_way, Pass)
    assert scene.under_way.payload == b""
