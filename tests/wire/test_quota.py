import pytest

from fedlearn.wire.errors import FloodError
from fedlearn.wire.quota import (
    BYTES,
    BYTES_PER_S,
    MESSAGES,
    MESSAGES_PER_LEASE,
    MESSAGES_PER_S,
    RESULTS,
    STRANGERS_MESSAGES,
    MessageQuota,
)


def emptied(*, of: str, leases: int = 0) -> MessageQuota:
    allowance = MessageQuota(0.0)
    for _ in range(leases):
        allowance.lease(0)
    if of == "messages":
        allowance.spend(int(MESSAGES if leases else STRANGERS_MESSAGES), 0, 0.0)
    else:
        allowance.spend(0, int(BYTES), 0.0)
    return allowance


def left_over(allowance: MessageQuota, *, of: str, now: float) -> int:
    """How often one more may be taken out."""
    taken = 0
    try:
        while taken < 10**7:
            allowance.spend(of == "messages", of == "bytes", now)
            taken += 1
    except FloodError:
        return taken
    raise AssertionError("a bucket without a bottom")


@pytest.mark.parametrize(("of", "per_s"), [("messages", MESSAGES_PER_S), ("bytes", BYTES_PER_S)])
def test_a_bucket_fills_with_time(of: str, per_s: float) -> None:
    assert left_over(emptied(of=of), of=of, now=0.0) == 0
    assert left_over(emptied(of=of), of=of, now=0.5) == int(per_s / 2)


@pytest.mark.parametrize(("of", "most"), [("messages", STRANGERS_MESSAGES), ("bytes", BYTES)])
def test_a_bucket_never_overflows(of: str, most: float) -> None:
    assert left_over(emptied(of=of), of=of, now=1e9) == int(most)


def test_a_lease_gives_messages_up_to_the_most() -> None:
    allowance = emptied(of="messages", leases=100)
    allowance.lease(0)
    assert left_over(allowance, of="messages", now=0.0) == int(MESSAGES_PER_LEASE)
    assert left_over(emptied(of="messages", leases=100), of="messages", now=1e9) == int(MESSAGES)


def test_a_lease_gives_room_for_its_results() -> None:
    allowance = emptied(of="bytes")
    allowance.lease(10_000)
    assert left_over(allowance, of="bytes", now=0.0) == int(BYTES_PER_S + RESULTS / 2 * 10_000)
    assert left_over(allowance, of="bytes", now=1.0) == int(BYTES_PER_S + RESULTS * 10_000) - 1  # what was too much
    assert left_over(allowance, of="bytes", now=1e9) == int(BYTES + RESULTS * 10_000)


def test_a_clock_that_stands_gives_nothing() -> None:
    allowance = emptied(of="messages")
    with pytest.raises(FloodError):
        allowance.spend(1, 0, -1.0)


def test_a_seat_sends_more_messages_and_bytes_for_each_lease() -> None:
    allowance = MessageQuota(0.0)
    allowance.lease(0)
    left_over(allowance, of="messages", now=0.0)  # and one that was too many
    allowance.lease_seat(500, 10**6)
    assert left_over(allowance, of="messages", now=0.0) == 500 - 1


def test_a_seat_sends_more_bytes_for_each_lease() -> None:
    allowance = MessageQuota(0.0)
    allowance.lease_seat(1, 10**6)
    assert left_over(allowance, of="bytes", now=0.0) >= 10**6
