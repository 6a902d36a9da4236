"""Which way a seat's activations go to the next one."""

from fedlearn.coordination.effects import ClientEffect, Forward, Reply
from fedlearn.coordination.work.route import ActivationRoute
from fedlearn.wire.messages import Activations, Neighbours, NextSeat, Unreachable

NEXT = Neighbours(1, NextSeat("192.0.2.1", 55552, bytes(32)), None)
NOBODY = Neighbours(2, None, None)


def said(first: int) -> Activations:
    return Activations(5, first, 8, bytes(8), b"payload")


def forwarded(effects: list[ClientEffect]) -> list[int]:
    return [effect.activations.first_member for effect in effects if isinstance(effect, Forward)]


def replied(effects: list[ClientEffect]) -> list[object]:
    return [effect.message for effect in effects if isinstance(effect, Reply)]


def test_activations_wait_until_the_next_seat_is_reached() -> None:
    way = ActivationRoute()
    way.name(NEXT)
    assert way.say(said(0)) == way.say(said(8)) == []
    assert forwarded(way.opened()) == [0, 8]
    assert forwarded(way.say(said(16))) == [16]
    assert way.opened() == [], "it was reached before"


def test_what_waits_for_one_neighbour_is_not_for_another() -> None:
    way = ActivationRoute()
    way.name(NEXT)
    way.say(said(0))
    way.name(NEXT)
    assert forwarded(way.opened()) == []


def test_the_loss_of_a_line_is_said_once_and_nothing_goes_on_before_the_server_answers() -> None:
    way = ActivationRoute()
    way.name(NEXT)
    way.say(said(0))
    assert replied(way.lost("it broke")) == [Unreachable(True, "it broke")]
    assert way.lost("it broke again") == way.say(said(8)) == way.opened() == []
    assert way._held == [], "no memory is kept for it"
    way.name(NOBODY)
    assert replied(way.say(said(16))) == [said(16)]


def test_without_a_line_none_is_lost() -> None:
    assert ActivationRoute().lost("it broke") == []
