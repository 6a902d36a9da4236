import pytest

from fedlearn.coordination.people import reputation as reputation
from fedlearn.coordination.people.reputation import MAX_CAUGHT, PROOF_GROUPS, Reputation, Reputations


def test_newcomer_is_steady_but_not_proven() -> None:
    newcomer = Reputation("k")
    assert (newcomer.is_steady, newcomer.is_trusted, newcomer.is_banned) == (True, False, False)
    assert Reputation("k", is_local=True).is_trusted


def test_groups_that_agree_prove_and_a_false_result_takes_all_of_it() -> None:
    someone, proven = Reputation("k"), []
    for n_groups in (PROOF_GROUPS - 1, 1):
        someone.agreed(n_groups)
        proven.append(someone.is_trusted)
    assert proven == [False, True]
    for time in range(1, MAX_CAUGHT + 1):
        someone.was_caught()
        proven.append(someone.is_trusted)
        assert someone.is_banned == (time == MAX_CAUGHT)
    assert not any(proven[2:])


def test_each_lateness_asks_for_twice_as_much_but_not_for_ever() -> None:
    someone = Reputation("k")
    needed = []
    for _ in range(13):
        someone.was_late()
        assert not someone.is_steady
        needed.append(someone.n_needed)
    assert needed == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024]


def test_lateness_is_forgiven_by_and_by() -> None:
    someone = Reputation("k")
    for _ in range(4):
        someone.was_late()
    for _ in range(8):
        assert not someone.is_steady
        someone.was_in_time()
    assert someone.is_steady
    for _ in range(8 * 16 - 8):
        someone.was_in_time()
    assert someone.n_needed == 4


def test_who_sends_nothing_rests_twice_as_long_each_time_but_not_for_ever() -> None:
    someone = Reputation("k")
    rests = []
    for _ in range(13):
        someone.rest(100)
        rests.append(someone.benched_until - 101)
    assert rests == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024]


def test_identity_is_remembered_by_its_last_name() -> None:
    reputations = Reputations([Reputation("old", n_caught=2)])
    reputations.of("a", name="anna", is_local=False).was_late()
    assert reputations.of("a", name="bert", is_local=False).n_needed == 1
    assert reputations.of("a", name="bert", is_local=False).name == "bert"
    assert reputations.of("old", name="", is_local=False).n_caught == 2


def test_memory_of_identities_is_bounded_and_keeps_the_false_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reputation, "MAX_REPUTATIONS", 3)
    reputations = Reputations()
    for identity in "abc":
        reputations.of(identity, name=identity, is_local=False).was_late()
    reputations.of("a", name="a", is_local=False).was_caught()
    reputations.of("b", name="b", is_local=False)
    reputations.of("d", name="d", is_local=False)  # c goes, which was seen longest ago
    assert [reputations.of(identity, name="", is_local=False).n_needed for identity in "ab"] == [1, 1]
    assert reputations.of("c", name="", is_local=False).n_needed == 0
    assert reputations.of("a", name="", is_local=False).n_caught == 1


def test_identities_with_false_results_are_forgotten_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reputation, "MAX_REPUTATIONS", 3)
    reputations = Reputations()
    reputations.of("false", name="", is_local=False).was_caught()  # seen longest ago
    for identity in "abc":
        reputations.of(identity, name="", is_local=False).was_late()
    assert reputations.of("false", name="", is_local=False).n_caught == 1
    assert [reputations.of(identity, name="", is_local=False).n_needed for identity in "cba"] == [1, 1, 0]


def test_of_false_ones_alone_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reputation, "MAX_REPUTATIONS", 2)
    reputations = Reputations()
    for identity in "abc":
        reputations.of(identity, name="", is_local=False).was_caught()
    assert [reputations.of(identity, name="", is_local=False).n_caught for identity in "cba"] == [1, 1, 0]


def crew_of(*seats: Reputation) -> Reputation:
    return Reputation("crew", seats=seats)


def test_a_crew_is_proven_as_all_its_seats_are() -> None:
    ada, bob = (Reputation(name, n_agreed=PROOF_GROUPS) for name in ("Ada", "Bob"))
    assert crew_of(ada, bob).is_trusted
    assert crew_of(ada, Reputation("own", is_local=True)).is_trusted
    assert not crew_of(ada, bob, Reputation("new")).is_trusted
    bob.was_caught()
    assert not crew_of(ada, bob).is_trusted
    assert [crew_of(ada).is_shared, crew_of(ada, bob).is_shared, ada.is_shared] == [False, True, False]


def test_the_seat_that_is_known_answers_and_where_none_is_all_of_them() -> None:
    ada, bob, own = Reputation("Ada"), Reputation("Bob"), Reputation("own", is_local=True)
    crew = crew_of(ada, own, bob, ada)
    assert crew.blamed(2) == (bob,)
    assert crew.blamed(0) == (ada,)
    assert crew.blamed(1) == (), "the server's own"
    assert crew.blamed(None) == (ada, bob), "each once"
    assert ada.blamed(None) == (ada,)
