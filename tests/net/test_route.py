import pytest

from fedlearn.net.address import Address
from fedlearn.net.route import Route

ONE, TWO, THREE = (Address(host, 1) for host in ("one", "two", "three"))


def test_addresses_are_tried_in_order_and_then_it_is_time_to_wait() -> None:
    route = Route([ONE, TWO, THREE])
    tried = [(route.address, route.failed()) for _ in range(4)]
    assert tried == [(ONE, True), (TWO, True), (THREE, False), (ONE, True)]


def test_after_a_conversation_the_first_is_tried_again() -> None:
    route = Route([ONE, TWO])
    route.failed()
    route.worked()
    assert route.address == ONE


def test_a_single_address_leaves_no_other() -> None:
    assert not Route([ONE]).failed()


def test_nobody_to_try_is_refused() -> None:
    with pytest.raises(ValueError, match="server: expected an address or more, got none"):
        Route([])
