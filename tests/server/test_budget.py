from typing import Any, final

import pytest

from fedlearn.es.update import Update
from fedlearn.server import budget
from fedlearn.server.budget import over_budget
from fedlearn.wire.encoding.parcel import Parcel
from fedlearn.wire.messages import DataBlock

ONE, TWO = Parcel(Update, bytes(100)), Parcel(Update, bytes(30))


@pytest.fixture(autouse=True)
def _much(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes count here."""
    monkeypatch.setattr(budget, "LITTLE_BYTES", 0)


@final
class Holder:
    """Stands in for a channel."""

    def __init__(self, name: str, pace: float, *parcels: Parcel, private_bytes: int = 0) -> None:
        self.name = name
        self._pace = pace
        self.private_bytes = private_bytes
        self.bytes_queued = sum(parcel.length_bytes for parcel in parcels)
        self.connection: Any = self
        self._parcels = parcels

    def pace_bytes_per_s(self, now: float) -> float:
        return self._pace * now

    def parcels(self) -> list[Parcel]:
        return list(self._parcels)


def dropped(max_bytes: int, *holders: Holder) -> str:
    given: Any = holders
    chosen: Any = over_budget(given, max_bytes=max_bytes, now=1.0)
    return "".join(holder.name for holder in chosen)


@pytest.mark.parametrize(("max_bytes", "names"), [(135, ""), (134, "a"), (104, "ab"), (99, "abc"), (0, "abc")])
def test_who_is_slowest_goes_first(max_bytes: int, names: str) -> None:
    holders = [Holder("c", 9.0, ONE), Holder("b", 5.0, TWO), Holder("a", 1.0, private_bytes=5)]
    assert dropped(max_bytes, *holders) == names


def test_what_many_share_counts_once() -> None:
    holders = [Holder(str(number), float(number), ONE, ONE, private_bytes=1) for number in range(9)]
    assert dropped(109, *holders) == ""
    assert dropped(108, *holders) == "0"


def test_what_somebody_else_is_still_sent_is_not_freed() -> None:
    assert dropped(100, Holder("a", 1.0, ONE, TWO), Holder("b", 2.0, ONE)) == "a"
    assert dropped(99, Holder("a", 1.0, ONE), Holder("b", 2.0, ONE)) == "ab"


def test_who_holds_nothing_stays() -> None:
    assert dropped(0, Holder("a", 0.0), Holder("b", 1.0, ONE)) == "b"


def test_who_holds_little_stays_however_slow_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "LITTLE_BYTES", 30)
    assert dropped(50, Holder("a", 1.0, TWO), Holder("b", 2.0, ONE), Holder("c", 3.0, ONE, private_bytes=1)) == "bc"


@pytest.mark.parametrize(("n_blocks", "names"), [(1, ""), (2, ""), (3, "0"), (4, "01")])
def test_two_blocks_of_data_may_wait_besides(n_blocks: int, names: str) -> None:
    blocks = [Parcel(DataBlock, bytes(100 - number)) for number in range(n_blocks)]
    holders = [Holder(str(number), float(number), block) for number, block in enumerate(blocks)]
    assert dropped(0, *holders) == names
