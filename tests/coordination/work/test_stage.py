"""What a seat does with what its neighbours send, and with what the server says about it."""

import pytest

from fedlearn.coordination.effects import Forward, Link, Notice, Reply
from fedlearn.coordination.work.stage import CrewStage
from fedlearn.coordination.work.work import Heard, Linked, Unlinked
from fedlearn.tasks.parts.computation import Pass, Passed
from fedlearn.wire.messages import Activations, Neighbours, NextSeat, Seat, SeatBefore, Unreachable
from tests.coordination.work.scene import FIRST, GROUP, assignment, of

KEY = bytes(32)
BOTH = Neighbours(1, NextSeat("192.0.2.1", 55552, KEY), SeatBefore(KEY, GROUP, 4, 0))


def stage(*, is_direct: bool = True) -> CrewStage:
    """The middle one of three, with a lease."""
    made = CrewStage(Seat(7, (1, 2), 1, 1, "float32", GROUP, 2, 4, 0), is_direct=is_direct)
    made.take(assignment(4), 0.0)
    return made


def said(n_bytes: int = 4 * GROUP) -> Activations:
    return Activations(4, FIRST, GROUP, bytes(8), bytes(n_bytes))


def pass_on(made: CrewStage) -> list[object]:
    order = made.next(4, 0.0)
    assert isinstance(order, Pass)
    return list(made.done(order, Passed(b"made"), bytes(8), started=0.0, now=1.0))


def test_what_comes_straight_goes_straight_on() -> None:
    made = stage()
    assert made.take(BOTH, 0.0) == [Link(BOTH)]
    assert of(Notice, made.take(Linked(), 0.0))
    assert made.take(Heard(said()), 0.0) == []
    passed = Activations(4, FIRST, GROUP, bytes(8), b"made")
    assert pass_on(made) == [Forward(passed), Reply(Activations(4, FIRST, GROUP, bytes(8), b""))]


def test_neighbours_are_not_called_by_a_machine_that_does_not_listen() -> None:
    made = stage(is_direct=False)
    assert made.take(BOTH, 0.0) == []
    assert made.take(Heard(said()), 0.0) == []
    assert made.next(4, 0.0) is None


@pytest.mark.parametrize("event", [Unlinked("it broke", is_next=False), Heard(said(3))])
def test_a_seat_before_that_fails_is_turned_away_once(event: Heard | Unlinked) -> None:
    made = stage()
    made.take(BOTH, 0.0)
    (told,) = of(Reply, made.take(event, 0.0))
    assert isinstance(told.message, Unreachable)
    assert not told.message.is_next
    assert made.take(event, 0.0) == []


def test_a_next_seat_that_is_lost_is_reported() -> None:
    made = stage()
    made.take(BOTH, 0.0)
    (told,) = of(Reply, made.take(Unlinked("it broke", is_next=True), 0.0))
    assert told.message == Unreachable(True, "it broke")
