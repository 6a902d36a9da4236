"""Chooses which results are checked, and by whom, and decides what follows for their senders.

The choice is random, and only the server knows the generator's seed. The server checks all results of a newcomer before
they count. Of all other results a share is checked, and of each Result some with a probability of `LEAST_CHANCE` or
more: 100 false ones in a row go unnoticed with a probability of 0.95^100 = 0.6 %. That share is checked by other
volunteers that the server trusts, where there are any, and the server checks some groups itself.
"""

from collections import deque
from collections.abc import Sequence
from typing import Protocol, final

import msgspec
import numpy as np

from fedlearn.coordination.audits import evidence
from fedlearn.coordination.audits.audit import Claim, Finding, Verdict, loss_differences, moment_differences
from fedlearn.coordination.audits.tolerance import ANYTHING, Tolerances
from fedlearn.coordination.leases.lease import Lease, Overlap
from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.people.credit import Ledger
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.es.sums.estimate import NO_ESTIMATE

LEAST_CHANCE = 0.05
"""The least probability with which some of a Result is checked."""

MAX_PENDING = 4
"""Claims that wait to be checked; further ones are dropped, so that no step waits for audits. Claims of untrusted
volunteers, whose members wait for them, are not counted: else any number of these could keep the trusted ones from
being checked."""

MAX_NAMED = 16
"""The number of latest false results whose senders are named when a run ends."""

CATCHING_UP = 2.0
"""While less than the share has been checked, volunteers are given copies of this many times as much."""

REPEATED = 0.1
"""Share of the comparisons in which two volunteers agree and the server checks a group itself: that finds volunteers
that lie together, and makes what ten of them check cost the server less than a group each."""


class Lottery(Protocol):
    """Draws randomly; Python's own `random.Random` is one."""

    def random(self) -> float:
        """A number from 0 to 1."""

    def sample(self, population: Sequence[int], k: int) -> list[int]:
        """`k` different elements of a population."""


@final
class Auditor:
    """Has `share` of the groups checked (0: none), and records the outcomes in the ledger."""

    def __init__(
        self, share: float, ledger: Ledger, *, lottery: Lottery | None, tolerances: Tolerances = ANYTHING
    ) -> None:
        """`lottery` is seeded with the server's secret; without a lottery nothing is ever checked."""
        self._tolerances = tolerances
        self._share = self._planned = share if lottery is not None else 0.0
        self._ledger = ledger
        self._lottery = lottery
        self._n_pending = 0
        self._has_helpers = False
        self._is_alarmed = False
        self._false: deque[tuple[int, str]] = deque(maxlen=MAX_NAMED)
        self.n_received = 0
        """Members that counted immediately, from volunteers on other machines."""
        self.n_checked = 0
        """Those of them that were checked, by anybody."""

    def plan(self, share: float) -> None:
        """Changes the share of the groups that is checked, from the next step on."""
        self._planned = share if self._lottery is not None else 0.0

    def begin_step(self) -> None:
        """Notes that a step is opened; one step never has two shares, since what is held in it waits for a verdict."""
        self._share = self._planned

    def trusts(self, reputation: Reputation) -> bool:
        """Whether an identity's results count before they are checked."""
        if self._is_alarmed and self._share > 0.0:
            return reputation.is_local
        return reputation.is_trusted or self._share == 0.0

    def alarm(self, *, on: bool) -> None:
        """Trusts nobody while losses look as if the run diverged: they may be false losses of volunteers that were
        trusted."""
        self._is_alarmed = on

    def false_since(self, step: int) -> list[str]:
        """Names of those whose results of this step or a later one were false, the latest last."""
        return list(dict.fromkeys(name for at, name in self._false if at >= step))

    def appoint(self, able: Sequence[tuple[Reputation, int]], *, is_summed: bool) -> list[int] | None:
        """Chooses the volunteers that check others in the next step, by their indices; None where no volunteer can.

        Each comes with the number of groups that it is asked for. Volunteers do not check sums, of which no part can be
        checked.
        """
        n_groups = sum(groups for _, groups in able)
        n_others = sum(groups for reputation, groups in able if not reputation.is_local)
        is_possible = not self._is_alarmed and len({reputation.identity for reputation, _ in able}) > 1 and n_others > 0
        self._has_helpers = self._share > 0.0 and is_possible and not is_summed
        if not self._has_helpers:
            return None
        # Nobody checks the server's own volunteers, so fewer are needed where those do most of the work.
        chance = self._share * n_others / n_groups * (CATCHING_UP if self._lags else 1.0)
        n_named = min(int(chance * len(able) + self._random()), len(able) // 2)
        return self._sample(len(able), n_named)

    def place(self, n_places: int) -> int:
        """Draws one of `n_places` indices."""
        return int(self._random() * n_places)

    def compare(self, overlap: Overlap, step: OpenStep) -> list[Claim]:
        """Compares the results of a lease with those of its copy; gives the claims that the server must check itself.

        Where they differ, that is the group in which they differ most, as both sent it; `settle` is called with each of
        the two, and a volunteer that the server does not confirm was false.
        """
        first, end = overlap.uncompared()
        if first >= end or self._share == 0.0:
            return []
        size = step.population.group_size
        found, again = (lease.losses_of(first, end) for lease in (overlap.original, overlap.copy))
        tolerance = self._tolerances.of(step.population.perturbation)
        seen, seen_again = (
            lease.moments_of((first - lease.first_member) // size, (end - lease.first_member) // size)
            for lease in (overlap.original, overlap.copy)
        )
        differences = np.maximum(
            loss_differences(found, again, size, tolerance),
            moment_differences(seen, seen_again, (end - first) // size, tolerance),
        )
        group, is_disputed = int(differences.argmax()), bool(differences.max() > 1.0)
        overlap.compared = step.next_member if is_disputed else end
        holder = overlap.original.reputation
        if not is_disputed:
            for each in holder.holders:
                self._ledger.of(each.identity, each.name).agreed += differences.size
            self.n_checked += 0 if holder.is_local else end - first
            is_usual = differences.mean() <= tolerance.usual
            if self._random() >= REPEATED and is_usual:
                return []
            group = self.place(differences.size)
        both = (overlap.original, overlap.copy)
        claims = [
            msgspec.structs.replace(_claim_of(lease, step, first + group * size), tolerance=tolerance)
            for lease in both
            if not lease.reputation.is_local
        ]
        self._n_pending += len(claims)
        return claims

    def draw(self, claim: Claim) -> list[Claim]:
        """Draws the parts of a whole Result that the server is to check; `settle` is called later with each part."""
        if self._share == 0.0 or claim.reputation.is_local:
            return []
        self.n_received += 0 if claim.lease.is_held else claim.trials.n_members
        tolerance = self._tolerances.of(claim.trials.perturbation)
        is_owed = claim.lease.is_held
        drawn = [msgspec.structs.replace(one, tolerance=tolerance, is_owed=is_owed) for one in self._draw(claim)]
        self._n_pending += 0 if is_owed else len(drawn)
        return drawn

    def settle(self, claim: Claim, finding: Finding, verdict: Verdict) -> tuple[Finding, Verdict]:
        """Takes the outcome of a claim that was drawn; gives the outcome together with all earlier ones."""
        self._n_pending -= 0 if claim.is_owed else 1
        if finding is Finding.TRUE and self._adds_up(claim, verdict):
            finding, verdict = Finding.FALSE, msgspec.structs.replace(verdict, adds_up=True)
        self.n_checked += 0 if claim.lease.is_held or claim.lease.is_copy else claim.trials.n_members
        match finding:
            case Finding.TRUE:
                for holder in claim.reputation.holders:
                    holder.agreed(claim.trials.n_groups)
                    self._ledger.of(holder.identity, holder.name).agreed += claim.trials.n_groups
            case Finding.FALSE:
                for guilty in claim.reputation.blamed(verdict.place):
                    guilty.was_caught()
                    self._false.append((verdict.step, guilty.name))
                    earned = self._ledger.of(guilty.identity, guilty.name)
                    earned.caught, earned.doubt = earned.caught + 1, guilty.doubt
            case Finding.UNDECIDABLE:
                self._share = self._planned = 0.0
        return finding, verdict

    def _adds_up(self, claim: Claim, verdict: Verdict) -> bool:
        """Whether an identity's results are false together although each is within the tolerance.

        Nobody knows which seat of a crew is slightly off, and a crew's reputation is that of its seats.
        """
        reputation = claim.reputation
        if reputation.is_shared:
            return False
        (holder,) = reputation.holders
        holder.doubt = evidence.added(holder.doubt, verdict.difference, usual=claim.tolerance.usual)
        self._ledger.of(holder.identity, holder.name).doubt = holder.doubt
        return evidence.is_enough(holder.doubt)

    def _draw(self, claim: Claim) -> list[Claim]:
        # A result that is held waits for a verdict, so one must come.
        n_most = max(MAX_PENDING - self._n_pending, int(claim.lease.is_held))
        n_drawn = min(self._n_wanted(claim), n_most)
        if claim.trials.perturbation.is_summed:
            return [claim] if n_drawn else []  # no part of a sum can be checked
        drawn = [_group_of(claim, group) for group in self._sample(claim.trials.n_groups, n_drawn)]
        if drawn and claim.trials.shaping is not None:
            drawn[0] = msgspec.structs.replace(drawn[0], whole=claim)
        return drawn

    def _n_wanted(self, claim: Claim) -> int:
        """Number of groups of a Result that the server should check; a rounded sum counts as one."""
        trials, is_doubtful = claim.trials, claim.lease.is_held or not claim.reputation.is_trusted
        if trials.perturbation.is_summed:
            return int(is_doubtful or self._random() < max(self._share, LEAST_CHANCE))
        is_helped = self._has_helpers and not is_doubtful and not self._lags and not claim.reputation.is_shared
        n_shared = 0 if is_helped else int(self._share * trials.n_groups + self._random())
        # Volunteers check losses only, so the server checks exact sums as often as without them.
        chance = LEAST_CHANCE - self._share if is_helped and trials.shaping is None else LEAST_CHANCE
        return max(n_shared, int(is_doubtful or self._random() < chance))

    @property
    def _lags(self) -> bool:
        """Whether less than the share has been checked."""
        return self.n_checked < self._share * self.n_received

    def _random(self) -> float:
        assert self._lottery is not None, "drawing without a lottery"
        return self._lottery.random()

    def _sample(self, n: int, n_chosen: int) -> list[int]:
        """Draws `n_chosen` of `n` indices, in no order."""
        assert self._lottery is not None, "drawing without a lottery"
        return self._lottery.sample(range(n), min(n, n_chosen))


def _claim_of(lease: Lease, step: OpenStep, first_member: int) -> Claim:
    """The results that a lease's holder reported for one group."""
    size = step.population.group_size
    trials = msgspec.structs.replace(step.trials(first_member, size), shaping=None)
    losses = lease.losses_of(first_member, first_member + size)
    group = (first_member - lease.first_member) // size
    moments = lease.moments_of(group, group + 1)
    return Claim(lease.reputation, trials, step.block, losses, NO_ESTIMATE, lease, moments)


def _group_of(claim: Claim, group: int) -> Claim:
    size = claim.trials.group_size
    losses = claim.losses[group * size : (group + 1) * size]
    trials = msgspec.structs.replace(claim.trials.part(group, 1), shaping=None)
    each = claim.moments.size // claim.trials.n_groups
    moments = claim.moments[group * each : (group + 1) * each]
    return msgspec.structs.replace(claim, trials=trials, losses=losses, estimate=NO_ESTIMATE, moments=moments)
