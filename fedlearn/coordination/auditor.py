"""Which results are computed again, by whom, and what follows for those who sent them.

The choice is a generator's whose seed nobody but the server knows. A newcomer's results are checked one and all before
they count, by the server. Of everybody else's a share is, and of each Result some with a probability of `LEAST_CHANCE`
at least: whoever sends 100 false ones in a row goes unnoticed with a probability of 0.95^100 = 0.6 %. The share is
checked by other volunteers whom the server trusts, where there are any, and the server looks at what is left.
"""

from collections.abc import Sequence
from typing import Protocol, final

import msgspec

from fedlearn.coordination.audit import Claim, Finding, loss_differences
from fedlearn.coordination.credit import Ledger
from fedlearn.coordination.open_step import Lease, OpenStep, Overlap
from fedlearn.coordination.standing import Standing
from fedlearn.es.estimate import NO_ESTIMATE

LEAST_CHANCE = 0.05
"""Of a Result to have some of it computed again."""

MAX_PENDING = 4
"""Claims that wait to be computed; what is drawn beyond that is let go, so that no step waits for audits."""

CATCHING_UP = 2.0
"""As long as less than the share was checked, so many times as much of a step is given to two volunteers."""

REPEATED = 0.1
"""Of what two volunteers agreed on the server looks at a group itself: so those who lie together are found, and what
ten volunteers check still costs it less than a group each."""


class Lottery(Protocol):
    """Draws by chance; Python's own `random.Random` is one."""

    def random(self) -> float:
        """From 0 to 1."""

    def sample(self, population: Sequence[int], k: int) -> list[int]:
        """Some of these, none twice."""


@final
class Auditor:
    """Has `share` of the groups computed again, 0: none ever; and writes down in the ledger what it finds."""

    def __init__(self, share: float, ledger: Ledger, *, lottery: Lottery | None) -> None:
        """`lottery` is seeded by the server's secret; without one nothing is ever computed again."""
        self._share = self._planned = share if lottery is not None else 0.0
        self._ledger = ledger
        self._lottery = lottery
        self._n_pending = 0
        self._has_helpers = False
        self.n_received = 0
        """Members that counted at once, from volunteers of others' machines."""
        self.n_checked = 0
        """Of these, those that were computed again, by whomever."""

    def plan(self, share: float) -> None:
        """Another share of the groups, from the next step on."""
        self._planned = share if self._lottery is not None else 0.0

    def begin_step(self) -> None:
        """A step is opened; none has two shares, since what is held in it waits for a verdict."""
        self._share = self._planned

    def trusts(self, standing: Standing) -> bool:
        """Whether results count before they are checked."""
        return standing.is_proven or self._share == 0.0

    def appoint(self, able: Sequence[tuple[Standing, int]], *, is_summed: bool) -> list[int] | None:
        """Which of these check others in the next step, by their places; None where nobody can.

        Each comes with the groups that are asked of it. Sums can't be checked in parts, and volunteers do only that.
        """
        n_groups = sum(groups for _, groups in able)
        n_others = sum(groups for standing, groups in able if not standing.is_local)
        is_possible = len({standing.identity for standing, _ in able}) > 1 and n_others > 0
        self._has_helpers = self._share > 0.0 and is_possible and not is_summed
        if not self._has_helpers:
            return None
        # Nobody checks the server's own, so that fewer are needed where those do most of the work.
        chance = self._share * n_others / n_groups * (CATCHING_UP if self._lags else 1.0)
        n_named = min(int(chance * len(able) + self._random()), len(able) // 2)
        return self._sample(len(able), n_named)

    def place(self, n_places: int) -> int:
        """Any of so many."""
        return int(self._random() * n_places)

    def compare(self, overlap: Overlap, step: OpenStep, block: bytes) -> list[Claim]:
        """Holds what is in of a lease against the copy of it; gives what the server has to look at itself.

        Where the two differ that is the group in which they do most, as each of them has it: `settle` is called with
        both. Whoever is not what the server finds then is false, be it the one or the other.
        """
        first, end = overlap.uncompared()
        if first >= end or self._share == 0.0:
            return []
        size = step.population.group_size
        found, again = (lease.losses_of(first, end) for lease in (overlap.original, overlap.copy))
        differences = loss_differences(found, again, size)
        group, is_disputed = int(differences.argmax()), bool(differences.max() > 1.0)
        overlap.compared = step.next_member if is_disputed else end
        holder = overlap.original.standing
        if not is_disputed:
            self._ledger.of(holder.identity, holder.name).agreed += differences.size
            self.n_checked += 0 if holder.is_local else end - first
            if self._random() >= REPEATED:
                return []
            group = self.place(differences.size)
        both = (overlap.original, overlap.copy)
        claims = [_claim_of(lease, step, block, first + group * size) for lease in both if not lease.standing.is_local]
        self._n_pending += len(claims)
        return claims

    def draw(self, claim: Claim) -> list[Claim]:
        """What of a whole Result is to be computed again; `settle` is called with each of it then."""
        if self._share == 0.0 or claim.standing.is_local:
            return []
        self.n_received += 0 if claim.lease.is_held else claim.trials.n_members
        drawn = self._draw(claim)
        self._n_pending += len(drawn)
        return drawn

    def settle(self, claim: Claim, finding: Finding) -> None:
        """What was drawn was examined."""
        self._n_pending -= 1
        self.n_checked += 0 if claim.lease.is_held or claim.lease.is_copy else claim.trials.n_members
        earned = self._ledger.of(claim.standing.identity, claim.standing.name)
        match finding:
            case Finding.TRUE:
                claim.standing.agreed(claim.trials.n_groups)
                earned.agreed += claim.trials.n_groups
            case Finding.FALSE:
                claim.standing.was_caught()
                earned.caught += 1
            case Finding.UNDECIDABLE:
                self._share = self._planned = 0.0

    def _draw(self, claim: Claim) -> list[Claim]:
        # What is held waits for a verdict, so there has to be one.
        n_most = max(MAX_PENDING - self._n_pending, int(claim.lease.is_held))
        n_drawn = min(self._n_wanted(claim), n_most)
        if claim.trials.perturbation.is_summed:
            return [claim] if n_drawn else []  # a sum can't be checked in parts
        drawn = [_group_of(claim, group) for group in self._sample(claim.trials.n_groups, n_drawn)]
        if drawn and claim.trials.shaping is not None:
            drawn[0] = msgspec.structs.replace(drawn[0], whole=claim)
        return drawn

    def _n_wanted(self, claim: Claim) -> int:
        """Groups of a Result that the server should look at, or its only part where that is a sum."""
        trials, is_doubtful = claim.trials, claim.lease.is_held or not claim.standing.is_proven
        if trials.perturbation.is_summed:
            return int(is_doubtful or self._random() < max(self._share, LEAST_CHANCE))
        is_helped = self._has_helpers and not is_doubtful and not self._lags
        n_shared = 0 if is_helped else int(self._share * trials.n_groups + self._random())
        # What volunteers check is losses: exact sums are looked at as often as if they did not.
        chance = LEAST_CHANCE - self._share if is_helped and trials.shaping is None else LEAST_CHANCE
        return max(n_shared, int(is_doubtful or self._random() < chance))

    @property
    def _lags(self) -> bool:
        """Whether less than the share was computed again."""
        return self.n_checked < self._share * self.n_received

    def _random(self) -> float:
        assert self._lottery is not None, "drawing without a lottery"
        return self._lottery.random()

    def _sample(self, n: int, n_chosen: int) -> list[int]:
        """Some of so many, in no order."""
        assert self._lottery is not None, "drawing without a lottery"
        return self._lottery.sample(range(n), min(n, n_chosen))


def _claim_of(lease: Lease, step: OpenStep, block: bytes, first_member: int) -> Claim:
    """What a lease says of one group."""
    size = step.population.group_size
    trials = msgspec.structs.replace(step.trials(first_member, size), shaping=None)
    losses = lease.losses_of(first_member, first_member + size)
    return Claim(lease.standing, trials, block, losses, NO_ESTIMATE, lease)


def _group_of(claim: Claim, group: int) -> Claim:
    size = claim.trials.group_size
    losses = claim.losses[group * size : (group + 1) * size]
    trials = msgspec.structs.replace(claim.trials.part(group, 1), shaping=None)
    return msgspec.structs.replace(claim, trials=trials, losses=losses, estimate=NO_ESTIMATE)
