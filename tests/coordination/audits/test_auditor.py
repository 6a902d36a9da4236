"""What the lottery draws, counted."""

from random import Random

import msgspec
import numpy as np
import pytest

from fedlearn.coordination.audits.audit import Claim, Finding, Verdict
from fedlearn.coordination.audits.auditor import CATCHING_UP, LEAST_CHANCE, REPEATED, Auditor
from fedlearn.coordination.leases.lease import Lease
from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.people.credit import Ledger
from fedlearn.coordination.people.reputation import PROOF_GROUPS, Reputation
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.optimizers import Adam
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.shaping import Shaping
from fedlearn.es.strategy import Population
from fedlearn.es.sums.estimate import NO_ESTIMATE
from fedlearn.es.trials import Trials

GROUP, N_GROUPS = 4, 5
LOSSES = Perturbation(0.1, 1)
SUMS = Perturbation(0.1, 1, "activations", "closed-form")
LAYOUT = ParameterLayout((TensorSpec("vector", (3,)),))
ADA, BOB = (Reputation(name, name, n_agreed=PROOF_GROUPS) for name in ("Ada", "Bob"))
OWN = Reputation("own", "own", is_local=True)
N_DRAWS = 4000


def auditor_of(share: float, seed: int = 1) -> Auditor:
    return Auditor(share, Ledger(0, 0.0, work_per_member=1), lottery=Random(seed))


def claim_of(perturbation: Perturbation = LOSSES, shaping: Shaping | None = None, *, n_groups: int = N_GROUPS) -> Claim:
    trials = Trials(0, perturbation, GROUP, 0, n_groups * GROUP, shaping)
    return Claim(ADA, trials, b"", np.arange(n_groups * GROUP, dtype=np.float32), NO_ESTIMATE, Lease(0, 4))


def verdict_on(claim: Claim, difference: float = 0.0, place: int | None = None) -> Verdict:
    trials = claim.trials
    return Verdict(trials.step, trials.first_member, trials.n_members, "key", "name", difference, place)


def drawn(auditor: Auditor, claim: Claim) -> list[Claim]:
    """What is drawn, of which all is true."""
    found = auditor.draw(claim)
    for one in found:
        auditor.settle(one, Finding.TRUE, verdict_on(one))
    return found


def named(auditor: Auditor, *able: tuple[Reputation, int]) -> float:
    """How many a step, in the mean."""
    return sum(len(auditor.appoint(able, is_summed=False) or []) for _ in range(N_DRAWS)) / N_DRAWS


def test_nobody_is_named_where_nobody_else_is_trusted_or_needs_to_be_checked_or_sums_are_all_there_is() -> None:
    auditor = auditor_of(0.02)
    assert auditor.appoint([(ADA, 4)], is_summed=False) is None
    assert auditor.appoint([(ADA, 4), (ADA, 4)], is_summed=False) is None
    assert auditor.appoint([(OWN, 4), (Reputation("2", is_local=True), 4)], is_summed=False) is None
    assert auditor.appoint([(ADA, 4), (BOB, 4)], is_summed=True) is None
    assert auditor.appoint([(ADA, 4), (BOB, 4)], is_summed=False) is not None
    assert auditor_of(0.0).appoint([(ADA, 4), (BOB, 4)], is_summed=False) is None


def test_as_many_are_named_as_it_takes_to_check_the_share() -> None:
    assert named(auditor_of(0.05), (ADA, 8), (BOB, 8)) == pytest.approx(2 * 0.05, rel=0.2)


def test_more_are_named_while_less_than_the_share_was_checked() -> None:
    auditor = auditor_of(0.05)
    auditor.n_received = 100
    assert named(auditor, (ADA, 8), (BOB, 8)) == pytest.approx(CATCHING_UP * 2 * 0.05, rel=0.2)
    auditor.n_checked = 5
    assert named(auditor, (ADA, 8), (BOB, 8)) == pytest.approx(2 * 0.05, rel=0.2)


def test_fewer_are_named_where_the_servers_own_do_most_of_the_work() -> None:
    assert named(auditor_of(0.2), (OWN, 24), (ADA, 8)) == pytest.approx(0.25 * 2 * 0.2, rel=0.2)


@pytest.mark.parametrize(
    ("share", "claim", "n_drawn"),
    [
        (0.02, claim_of(SUMS), LEAST_CHANCE),
        (0.1, claim_of(SUMS), 0.1),
        (0.02, claim_of(), 0.02 * N_GROUPS + LEAST_CHANCE * (1 - 0.02 * N_GROUPS)),
        (1e-9, claim_of(), LEAST_CHANCE),
    ],
    ids=["sums", "more sums", "losses", "few losses"],
)
def test_server_alone_looks_at_the_share_and_at_little_of_each_result(
    share: float, claim: Claim, n_drawn: float
) -> None:
    auditor = auditor_of(share)
    n_found = sum(len(drawn(auditor, claim)) for _ in range(N_DRAWS))
    assert n_found / N_DRAWS == pytest.approx(n_drawn, rel=0.25)


@pytest.mark.parametrize(
    ("claim", "n_drawn"),
    [(claim_of(), LEAST_CHANCE - 0.02), (claim_of(shaping=Shaping("sign", 0.5)), LEAST_CHANCE)],
    ids=["losses", "exact sums"],
)
def test_server_looks_at_less_where_volunteers_check_but_at_as_many_exact_sums(claim: Claim, n_drawn: float) -> None:
    auditor = auditor_of(0.02)
    auditor.appoint([(ADA, 4), (BOB, 4)], is_summed=False)
    auditor.n_checked = 10**9
    n_found = sum(len(drawn(auditor, claim)) for _ in range(N_DRAWS))
    assert n_found / N_DRAWS == pytest.approx(n_drawn, rel=0.25)


def test_crews_are_looked_at_by_the_server_as_if_it_were_alone() -> None:
    auditor = auditor_of(0.02)
    auditor.appoint([(ADA, 4), (BOB, 4)], is_summed=False)
    auditor.n_checked = 10**9
    crew = msgspec.structs.replace(claim_of(), reputation=Reputation("crew", seats=(ADA, BOB)))
    n_found = sum(len(drawn(auditor, crew)) for _ in range(N_DRAWS))
    expected = 0.02 * N_GROUPS + LEAST_CHANCE * (1 - 0.02 * N_GROUPS)
    assert n_found / N_DRAWS == pytest.approx(expected, rel=0.25)


@pytest.mark.parametrize(("place", "guilty"), [(1, {"Bo": 1}), (None, {"Ann": 1, "Bo": 1, "Cid": 1})])
def test_what_is_found_of_a_crew_is_found_of_its_seats(place: int | None, guilty: dict[str, int]) -> None:
    ledger = Ledger(0, 0.0, work_per_member=1)
    auditor = Auditor(0.02, ledger, lottery=Random(1))
    seats = tuple(Reputation(name, name) for name in ("Ann", "Bo", "Cid"))
    claim = msgspec.structs.replace(claim_of(), reputation=Reputation("crew", seats=seats))
    auditor.settle(claim, Finding.TRUE, verdict_on(claim))
    assert [seat.n_agreed for seat in seats] == [N_GROUPS] * 3
    auditor.settle(claim, Finding.FALSE, verdict_on(claim, 2.0, place))
    assert {seat.name: seat.n_caught for seat in seats if seat.n_caught} == guilty
    assert [seat.n_agreed for seat in seats] == [0 if seat.name in guilty else N_GROUPS for seat in seats]
    earned = ledger.entry(0).earned
    assert {name: one.caught for name, one in earned.items() if one.caught} == guilty
    assert {name: one.agreed for name, one in earned.items()} == dict.fromkeys(["Ann", "Bo", "Cid"], N_GROUPS)


def test_server_looks_at_as_much_as_alone_while_less_than_the_share_was_checked() -> None:
    auditor, n_found = auditor_of(0.1), 0
    auditor.appoint([(ADA, 4), (BOB, 4)], is_summed=False)
    for _ in range(N_DRAWS):
        auditor.n_checked, auditor.n_received = 0, 1
        n_found += len(drawn(auditor, claim_of()))
    assert n_found / N_DRAWS == pytest.approx(0.1 * N_GROUPS + LEAST_CHANCE * 0.5, rel=0.1)


def compared(auditor: Auditor, holder: Reputation, *, lies: bool = False, off_by: float = 0.0) -> list[Claim]:
    """What the server has to look at of a lease and a copy of it."""
    population = Population(0, LOSSES, GROUP, N_GROUPS * GROUP, Adam(0.01), 0.0, 0.0)
    step = OpenStep(population, opened_at=0.0, deadline=1.0, first_member=0, layout=LAYOUT)
    lease = step.lease(N_GROUPS * GROUP, holder)
    copy = step.copy(0, N_GROUPS * GROUP, BOB)
    losses = np.arange(N_GROUPS * GROUP, dtype=np.float32)
    assert not lease.take(0, losses, NO_ESTIMATE, GROUP)
    assert not copy.take(0, -losses if lies else losses + np.float32(off_by), NO_ESTIMATE, GROUP)
    (overlap,) = lease.overlaps
    return auditor.compare(overlap, step)


def test_any_group_that_two_agree_on_may_be_the_one_that_the_server_looks_at() -> None:
    auditor = auditor_of(0.02)
    found = [compared(auditor, ADA) for _ in range(N_DRAWS)]
    assert sum(map(bool, found)) / N_DRAWS == pytest.approx(REPEATED, rel=0.2)
    assert all(len(claims) in (0, 2) for claims in found)
    assert {claims[0].trials.first_member for claims in found if claims} == set(range(0, N_GROUPS * GROUP, GROUP))
    assert auditor.n_checked == N_DRAWS * N_GROUPS * GROUP


def test_server_looks_whenever_two_agree_less_than_honest_machines_usually_do() -> None:
    auditor, tolerance = auditor_of(0.02), 0.1 * float(np.arange(GROUP).std())
    usual, unusual = (
        sum(bool(compared(auditor, ADA, off_by=share * tolerance)) for _ in range(200)) for share in (0.05, 0.5)
    )
    assert usual < 100
    assert unusual == 200


def test_of_the_servers_own_nothing_is_looked_at_but_of_who_says_something_else() -> None:
    auditor = auditor_of(0.02)
    assert [claim.reputation for claim in compared(auditor, OWN, lies=True)] == [BOB]
    assert auditor.n_checked == 0


def test_another_share_holds_from_the_next_step_on() -> None:
    auditor = auditor_of(0.0)
    auditor.plan(0.5)
    assert auditor.trusts(Reputation("new"))
    auditor.begin_step()
    assert not auditor.trusts(Reputation("new"))
    auditor.settle(claim_of(), Finding.UNDECIDABLE, verdict_on(claim_of()))
    auditor.begin_step()
    assert auditor.trusts(Reputation("new")), "what can't be decided is not asked again"
    without_secret = Auditor(0.0, Ledger(0, 0.0, work_per_member=1), lottery=None)
    without_secret.plan(0.5)
    without_secret.begin_step()
    assert without_secret.trusts(Reputation("new"))


def test_nothing_is_compared_once_audits_are_off() -> None:
    auditor = auditor_of(0.02)
    auditor.settle(claim_of(), Finding.UNDECIDABLE, verdict_on(claim_of()))
    assert compared(auditor, ADA, lies=True) == []


def test_strangers_whose_results_wait_keep_nobody_else_from_being_checked() -> None:
    auditor, held = auditor_of(0.02), Lease(0, 4, is_held=True)
    stranger = msgspec.structs.replace(claim_of(), reputation=Reputation("Eve", "Eve"), lease=held)
    waiting = [one for _ in range(20) for one in auditor.draw(stranger)]
    assert len(waiting) >= 20
    n_found = sum(len(drawn(auditor, claim_of())) for _ in range(N_DRAWS))
    assert n_found / N_DRAWS > LEAST_CHANCE
    for one in waiting:
        held.is_held = False  # as the first verdict leaves it
        auditor.settle(one, Finding.TRUE, verdict_on(one))
    assert auditor._n_pending == 0


def test_a_result_that_is_held_is_looked_at_however_many_wait() -> None:
    auditor, free = auditor_of(1.0), claim_of()
    held = msgspec.structs.replace(free, lease=Lease(0, 4, is_held=True))
    while auditor.draw(free):
        pass
    assert len(auditor.draw(held)) == 1


def test_copies_do_not_count_as_checked_once_more() -> None:
    auditor = auditor_of(0.5)
    auditor.settle(claim_of(), Finding.TRUE, verdict_on(claim_of()))
    for lease in (Lease(0, 4, is_copy=True), Lease(0, 4, is_held=True)):
        claim = msgspec.structs.replace(claim_of(), lease=lease)
        auditor.settle(claim, Finding.TRUE, verdict_on(claim))
    assert auditor.n_checked == N_GROUPS * GROUP
