import pytest

from fedlearn.coordination.people import rate_limit as module
from fedlearn.coordination.people.rate_limit import RateLimit


def test_so_many_may_come_at_once_and_then_at_that_rate() -> None:
    limit = RateLimit(60)
    assert [limit.take("a", 0.0) for _ in range(61)] == [True] * 60 + [False]
    assert [limit.take("a", 2.5), limit.take("a", 2.5), limit.take("a", 2.5)] == [True, True, False]


def test_rest_saves_up_no_more_than_a_minute() -> None:
    limit = RateLimit(2)
    limit.take("a", 0.0)
    assert [limit.take("a", 1e6) for _ in range(3)] == [True, True, False]


def test_everybody_has_a_limit_of_their_own() -> None:
    limit = RateLimit(1)
    assert [limit.take(key, 0.0) for key in "aba"] == [True, True, False]


def test_no_limit_needs_no_table() -> None:
    limit = RateLimit(0)
    assert all(limit.take(str(number), 0.0) for number in range(100))
    assert len(limit) == 0


def test_table_does_not_grow_beyond_its_bound_and_keeps_who_came_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 10)
    limit = RateLimit(1)
    for number in range(100):
        limit.take("flooder", 0.0)
        limit.take(f"address {number}", 0.0)
        assert len(limit) <= 10
    assert not limit.take("flooder", 0.0)
    assert [limit.take("late", 0.0), limit.take("late", 0.0)] == [True, False]
