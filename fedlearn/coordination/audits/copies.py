"""Audits that volunteers do for the server: a copy is a lease of members that others have leased, too.

A volunteer that the lottery names is given as many of others' members in place of its own. Neither its Assignment nor
theirs shows that, and its Results come while the step is open, so that no step lasts longer for it.
"""

from collections.abc import Sequence

from fedlearn.coordination.audits.auditor import Auditor
from fedlearn.coordination.leases.lease import Lease
from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.leases.sharing import Share
from fedlearn.coordination.people.roster import Party


def deal(step: OpenStep, shares: Sequence[Share], auditor: Auditor) -> list[tuple[Party, Lease]]:
    """Gives each party a lease: mostly members of their own, and copies to those that the lottery drew.

    A step that is closed elsewhere has no copies: all its members are wanted, and passed on as soon as they are in.
    """
    if step.awaits_update:
        return [_own(step, share, auditor) for share in shares]
    able = [share for share in shares if _is_able(share)]
    holders = [(share.party.reputation, share.n_groups) for share in able]
    named = auditor.appoint(holders, is_summed=step.population.perturbation.is_summed)
    if named is None:
        return [_own(step, share, auditor) for share in shares]
    chosen = set(named)
    owners = [share for number, share in enumerate(able) if number not in chosen]
    # The beginning of its members must not show a volunteer that it has a copy: the first one differs in every step.
    turn = auditor.place(len(owners))
    others = [share for share in shares if not _is_able(share)]
    dealt = [_own(step, share, auditor) for share in (*owners[turn:], *owners[:turn], *others)]
    size, n_owned = step.population.group_size, sum(share.n_groups for share in owners)
    for share in [able[number] for number in named]:
        n_groups = min(share.n_groups, n_owned)
        first_member = step.first_member + auditor.place(n_owned - n_groups + 1) * size
        dealt.append((share.party, step.copy(first_member, n_groups * size, share.party.reputation)))
    return dealt


def _is_able(share: Share) -> bool:
    """Whether the party can check others, and be checked by them.

    Crews can't: for a copy activations would travel once more, and those of whole steps would have to be kept until all
    copies are in, as it is from them that the server finds out which seat was false.
    """
    reputation = share.party.reputation
    return share.gates and reputation.is_trusted and not reputation.is_shared


def _own(step: OpenStep, share: Share, auditor: Auditor) -> tuple[Party, Lease]:
    reputation = share.party.reputation
    quota, is_held = share.n_groups * step.population.group_size, not auditor.trusts(reputation)
    return share.party, step.lease(quota, reputation, gates=share.gates, is_held=is_held)
