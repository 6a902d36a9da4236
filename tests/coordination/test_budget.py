import pytest

from fedlearn.coordination import budget as module
from fedlearn.coordination.budget import Budget, network_of


def test_so_many_may_come_at_once_and_then_at_that_rate() -> None:
    budget = Budget(60)
    assert [budget.take("a", 0.0) for _ in range(61)] == [True] * 60 + [False]
    assert [budget.take("a", 2.5), budget.take("a", 2.5), budget.take("a", 2.5)] == [True, True, False]


def test_rest_saves_up_no_more_than_a_minute() -> None:
    budget = Budget(2)
    budget.take("a", 0.0)
    assert [budget.take("a", 1e6) for _ in range(3)] == [True, True, False]


def test_everybody_has_a_budget_of_their_own() -> None:
    budget = Budget(1)
    assert [budget.take(key, 0.0) for key in "aba"] == [True, True, False]


def test_no_limit_needs_no_table() -> None:
    budget = Budget(0)
    assert all(budget.take(str(number), 0.0) for number in range(100))
    assert len(budget) == 0


def test_table_does_not_grow_beyond_its_bound_and_keeps_who_came_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 10)
    budget = Budget(1)
    for number in range(100):
        budget.take("flooder", 0.0)
        budget.take(f"address {number}", 0.0)
        assert len(budget) <= 10
    assert not budget.take("flooder", 0.0)
    assert [budget.take("late", 0.0), budget.take("late", 0.0)] == [True, False]


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("127.0.0.1", "loopback"),
        ("127.5.6.7", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("", ""),
        ("/run/socket", "/run/socket"),
    ],
)
def test_address_counts_for_its_network(address: str, network: str) -> None:
    assert network_of(address) == network
