import pytest

from fedlearn.net import refusals as module
from fedlearn.net.refusals import FIRST_S, LONGEST_S, TURN_S, Refusals

SOMEWHERE = "192.0.2.7"


def test_address_is_refused_for_a_minute() -> None:
    refusals = Refusals()
    assert refusals.seconds_left(SOMEWHERE, 100.0) == 0.0
    refusals.punish(SOMEWHERE, 100.0)
    assert refusals.seconds_left(SOMEWHERE, 100.0) == FIRST_S
    assert refusals.seconds_left(SOMEWHERE, 130.0) == FIRST_S - 30.0
    assert refusals.seconds_left(SOMEWHERE, 100.0 + FIRST_S) == 0.0
    assert refusals.seconds_left("192.0.2.8", 100.0) == 0.0


def test_every_flood_doubles_it_up_to_an_hour() -> None:
    refusals, now, lengths = Refusals(), 0.0, []
    for _ in range(9):
        refusals.punish(SOMEWHERE, now)
        lengths.append(refusals.seconds_left(SOMEWHERE, now))
        now += lengths[-1]
    assert lengths == [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0, 3600.0]


def test_an_hour_without_a_flood_is_forgiven() -> None:
    refusals = Refusals()
    refusals.punish(SOMEWHERE, 0.0)
    refusals.punish(SOMEWHERE, FIRST_S + LONGEST_S - 1.0)
    assert refusals.seconds_left(SOMEWHERE, FIRST_S + LONGEST_S - 1.0) == 2 * FIRST_S
    refusals.punish("192.0.2.8", 0.0)
    refusals.punish("192.0.2.8", FIRST_S + LONGEST_S)
    assert refusals.seconds_left("192.0.2.8", FIRST_S + LONGEST_S) == FIRST_S


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_this_machine_takes_turns_instead(address: str) -> None:
    refusals = Refusals()
    assert refusals.turn_s(address, 5.0) == 0.0
    refusals.punish(address, 10.0)
    assert refusals.seconds_left(address, 10.0) == 0.0
    assert [refusals.turn_s(address, 10.0) for _ in range(3)] == pytest.approx([TURN_S, 2 * TURN_S, 3 * TURN_S])
    assert refusals.turn_s(address, 20.0) == pytest.approx(TURN_S)
    assert refusals.turn_s(address, 10.0 + FIRST_S) == 0.0


def test_turns_get_longer_with_every_flood() -> None:
    refusals, turns = Refusals(), []
    for _ in range(7):
        refusals.punish("127.0.0.1", 0.0)
        turns.append(refusals.turn_s("127.0.0.1", 0.0))
    assert turns == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_who_has_many_addresses_is_refused_with_all_of_them() -> None:
    refusals = Refusals()
    refusals.punish("2001:db8:1:2:3:4:5:6", 0.0)
    assert refusals.seconds_left("2001:db8:1:2::7", 0.0) == FIRST_S
    assert refusals.seconds_left("2001:db8:1:3::7", 0.0) == 0.0


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NETWORKS", 2)
    refusals = Refusals()
    for last in (1, 2, 1, 3):
        refusals.punish(f"192.0.2.{last}", 0.0)
    assert [refusals.seconds_left(f"192.0.2.{last}", 0.0) > 0 for last in (1, 2, 3)] == [True, False, True]
