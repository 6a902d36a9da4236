from random import Random

from fedlearn.coordination.audits.auditor import Auditor
from fedlearn.coordination.audits.copies import deal
from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.leases.sharing import Share
from fedlearn.coordination.people.credit import Ledger
from fedlearn.coordination.people.reputation import PROOF_GROUPS, Reputation
from fedlearn.coordination.people.roster import Volunteer
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.optimizers import Adam
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.strategy import Population

GROUP = 4
LAYOUT = ParameterLayout((TensorSpec("vector", (3,)),))


def share_of(peer: int, n_groups: int, *, gates: bool = True, is_trusted: bool = True, identity: str = "") -> Share:
    reputation = Reputation(identity or f"{peer}", n_agreed=PROOF_GROUPS * is_trusted)
    return Share(Volunteer(peer, reputation=reputation), n_groups, gates)


def dealt(shares: list[Share], seed: int) -> tuple[OpenStep, set[int]]:
    """A step, and the peers that check others in it; as many as may."""
    population = Population(0, Perturbation(0.1, 1), GROUP, 64, Adam(0.01), 0.0, 0.0)
    step = OpenStep(population, opened_at=0.0, deadline=1.0, first_member=40, layout=LAYOUT)
    auditor = Auditor(1.0, Ledger(0, 0.0, work_per_member=1), lottery=Random(seed))
    leases = deal(step, shares, auditor)
    assert {party for party, _ in leases} == {share.party for share in shares}
    assert all(
        lease.quota <= share.n_groups * GROUP for share in shares for party, lease in leases if party is share.party
    )
    return step, {party.volunteers[0].peer for party, lease in leases if lease.is_copy}


def test_only_whom_a_step_waits_for_and_the_server_trusts_checks_or_is_checked() -> None:
    shares = [
        share_of(1, 4),
        share_of(2, 4),
        share_of(3, 4),
        share_of(4, 1, gates=False),
        share_of(5, 1, is_trusted=False),
        share_of(6, 1, gates=False, is_trusted=False),
    ]
    checking = set()
    for seed in range(50):
        step, peers = dealt(shares, seed)
        checking |= peers
        assert len(peers) == 1
        for lease in step.leases:
            holder = next(share for share in shares if share.party.reputation is lease.reputation)
            assert not lease.overlaps or holder.party.volunteers[0].peer in {1, 2, 3} - peers
            assert lease.is_held == (holder.party.volunteers[0].peer in (5, 6))
            assert lease.gates == holder.gates
    assert checking == {1, 2, 3}


def test_members_are_compared_with_others_only_each_of_them_once() -> None:
    shares = [share_of(1, 4), share_of(2, 4), share_of(3, 4), share_of(4, 4, identity="1")]
    for seed in range(50):
        step, _ = dealt(shares, seed)
        for copy in step.copies:
            overlaps = [overlap for overlap in copy.overlaps if overlap.copy is copy]
            assert all(overlap.original.reputation.identity != copy.reputation.identity for overlap in overlaps)
            for overlap in overlaps:
                assert overlap in overlap.original.overlaps
                assert max(copy.first_member, overlap.original.first_member) == overlap.compared
                assert overlap.compared < min(
                    copy.first_member + copy.quota, overlap.original.first_member + overlap.original.quota
                )
            begins = [lease for lease in step.leases if lease.first_member < copy.first_member + copy.quota]
            beside = [lease for lease in begins if lease.first_member + lease.quota > copy.first_member]
            assert len(overlaps) == sum(lease.reputation.identity != copy.reputation.identity for lease in beside)


def test_who_has_more_than_all_others_checks_what_there_is() -> None:
    for seed in range(10):
        step, (peer,) = dealt([share_of(1, 9), share_of(2, 2)], seed)
        (copy,), (lease,) = step.copies, step.leases
        assert (copy.quota, lease.quota) == (2 * GROUP, (2 if peer == 1 else 9) * GROUP)
        assert 40 <= copy.first_member <= 40 + lease.quota - copy.quota


def test_crews_check_nobody_and_nobody_but_the_server_checks_them() -> None:
    proven = tuple(Reputation(name, n_agreed=PROOF_GROUPS) for name in ("a", "b"))
    pair = Share(Volunteer(9, reputation=Reputation("crew", seats=proven)), 4, gates=True)
    alone = Share(Volunteer(8, reputation=Reputation("crew of one", seats=proven[:1])), 4, gates=True)
    checking = set()
    for seed in range(30):
        step, peers = dealt([share_of(1, 4), pair, alone, share_of(2, 4)], seed)
        checking |= peers
        (lease,) = [lease for lease in step.leases if lease.reputation is pair.party.reputation]
        assert not lease.overlaps
        assert not lease.is_held
    assert checking == {1, 2, 8}
