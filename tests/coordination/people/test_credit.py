import pytest

from fedlearn.coordination.people import credit as module
from fedlearn.coordination.people.credit import INTERVAL_S, Earned, Ledger
from fedlearn.wire.messages import Credit


def test_entry_has_what_was_earned_since_the_one_before() -> None:
    ledger = Ledger(3, now=10.0, work_per_member=5)
    ledger.add("a", "anna", 64, 0.5)
    ledger.add("b", "bert", 32, 0.25)
    ledger.add("a", "anna", 16, 0.5)
    first = ledger.entry(4)
    assert (first.first_step, first.step) == (3, 4)
    assert first.earned == {
        "a": Earned(name="anna", members=80, work=400, seconds=1.0),
        "b": Earned(name="bert", members=32, work=160, seconds=0.25),
    }
    ledger.of("b", "bert").caught += 1
    second = ledger.entry(5)
    assert (second.first_step, second.step, second.earned) == (5, 5, {"b": Earned(name="bert", caught=1)})


def test_entry_is_due_once_an_interval() -> None:
    ledger = Ledger(0, now=10.0, work_per_member=1)
    times = [10.0, 10.0 + INTERVAL_S - 0.01, 10.0 + INTERVAL_S, 10.0 + 2 * INTERVAL_S - 0.01, 10.0 + 2 * INTERVAL_S]
    assert [ledger.is_due(now) for now in times] == [False, False, True, False, True]


def test_what_is_earned_adds_up_under_the_last_name() -> None:
    earned = Earned(name="anna", members=1, work=5, seconds=2.0, agreed=3, caught=4)
    earned.add(Earned(name="", members=10, work=50, seconds=20.0, agreed=30, caught=40))
    assert earned == Earned(name="anna", members=11, work=55, seconds=22.0, agreed=33, caught=44)
    earned.add(Earned(name="anne"))
    assert earned.name == "anne"


def test_total_is_what_all_entries_amount_to_and_what_was_before() -> None:
    ledger = Ledger(3, now=10.0, work_per_member=5, before={"a": Earned(members=100, work=7, seconds=1.5, caught=2)})
    assert ledger.total("a") == Credit(100, 7, 1, 0, 2)
    assert ledger.total("b") is None
    ledger.add("a", "anna", 64, 0.5)
    ledger.of("a", "anna").agreed += 4
    assert ledger.total("a") == Credit(100, 7, 1, 0, 2)
    ledger.entry(3)
    assert ledger.total("a") == Credit(164, 327, 2, 4, 2)
    ledger.add("a", "anna", 1, 0.9)
    ledger.add("b", "bert", 2, 0.9)
    assert ledger.entry(4).earned["a"] == Earned(name="anna", members=1, work=5, seconds=0.9)
    assert ledger.total("a") == Credit(165, 332, 2, 4, 2)
    assert ledger.total("b") == Credit(2, 10, 0, 0, 0)


def test_totals_are_bounded_and_who_earns_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TOTALS", 2)
    ledger = Ledger(0, now=0.0, work_per_member=1)
    for step, identity in enumerate("abac"):
        ledger.add(identity, identity, 1, 0.0)
        ledger.entry(step)
    totals = [ledger.total(identity) for identity in "abc"]
    assert totals == [Credit(2, 2, 0, 0, 0), None, Credit(1, 1, 0, 0, 0)]
