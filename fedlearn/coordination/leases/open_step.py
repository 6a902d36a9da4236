"""A step while it is open: its population, cut into leases, and what all results amount to."""

import math
from bisect import bisect_right
from typing import final

import numpy as np

from fedlearn.coordination.leases.lease import Exactness, Float32Array, Lease, LeaseTotals, Overlap
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.steps.variance import typical_variance
from fedlearn.es.layout import ParameterLayout
from fedlearn.es.shaping import Shaping
from fedlearn.es.strategy import Population
from fedlearn.es.sums.clipping import Clipping
from fedlearn.es.sums.estimate import (
    NO_ESTIMATE,
    CodedEstimate,
    encode_estimate,
    encode_exactly,
    encode_packed,
    random_bytes,
)
from fedlearn.es.sums.moments import Int64Array, width
from fedlearn.es.trials import Trials
from fedlearn.tasks.blocks import NO_BLOCK
from fedlearn.wire.messages import Assignment

GRACE = 2.0
"""Multiple of the seconds that half of the population took, for which the step stays open after that."""

LEAST_GRACE_S = 0.1
"""The shortest such time; later volunteers are cut off, but the results that they have sent count."""


@final
class OpenStep:
    """The population of a step, cut into leases; member numbers begin at `first_member`."""

    def __init__(
        self,
        population: Population,
        *,
        opened_at: float,
        deadline: float,
        first_member: int,
        layout: ParameterLayout,
        block: bytes = NO_BLOCK,
        shaping: Shaping | None = None,
        awaits_update: bool = False,
    ) -> None:
        """`shaping` is how volunteers shape losses to sum their own members' gradients; None where those are replayed.

        With `awaits_update` the server above makes the Update, and the step is open until it comes.
        """
        self.population = population
        self.awaits_update = awaits_update
        self.block = block
        self.shaping = shaping
        self._exactness = Exactness(shaping, population.perturbation) if shaping is not None else None
        self._layout = layout if shaping is not None or population.perturbation.is_summed else None
        self._n_observed = 0 if population.perturbation.is_summed else layout.n_observed
        self.opened_at = opened_at
        self.deadline = deadline
        self.first_result_at = math.inf
        self.first_member = first_member
        self.next_member = first_member
        self.leases: list[Lease] = []
        self.copies: list[Lease] = []
        self._totals = LeaseTotals()

    def lease(
        self, quota: int, reputation: Reputation | None = None, *, gates: bool = True, is_held: bool = False
    ) -> Lease:
        """The next private range of `quota` members; see Lease."""
        lease = self.lease_again(
            self.next_member, quota, reputation or Reputation(""), gates=gates, is_held=is_held, now=self.opened_at
        )
        self.next_member += quota
        return lease

    def lease_again(
        self, first_member: int, quota: int, reputation: Reputation, *, gates: bool = True, is_held: bool, now: float
    ) -> Lease:
        """Leases a range that nobody leases any more."""
        lease = Lease(
            first_member,
            quota,
            self._layout,
            self._exactness,
            reputation,
            leased_at=now,
            n_observed=self._n_observed,
            totals=self._totals,
            gates=gates,
            is_held=is_held,
        )
        self._totals.add(lease)
        self.leases.append(lease)
        return lease

    def copy(self, first_member: int, quota: int, reputation: Reputation) -> Lease:
        """Leases a copy of members that others lease; leases of the same holder are not compared."""
        copy = Lease(
            first_member,
            quota,
            self._layout,
            self._exactness,
            reputation,
            leased_at=self.opened_at,
            n_observed=self._n_observed,
            totals=self._totals,
            is_copy=True,
        )
        self._totals.add(copy)
        self.copies.append(copy)
        begin = bisect_right(self.leases, first_member, key=lambda lease: lease.first_member) - 1
        for lease in self.leases[begin:]:
            if lease.first_member >= first_member + quota:
                break
            if lease.reputation.identity != reputation.identity:
                overlap = Overlap(copy, lease, max(first_member, lease.first_member))
                copy.overlaps.append(overlap)
                lease.overlaps.append(overlap)
        return copy

    def count_a_copy(self) -> None:
        """Lets a copy count where nothing else does: the holders of its members sent no results."""
        begun = (copy for copy in self.copies if copy.n_received and not copy.is_held)
        copy = max(begun, key=lambda copy: copy.n_received, default=None)
        if copy is not None and self.n_members == 0:
            copy.count()
            self.leases, self.copies = [copy], []

    def assignment(self, lease: Lease) -> Assignment:
        """The message to the holder of a new lease."""
        return Assignment(
            step=self.population.step,
            block=self.block,
            perturbation=self.population.perturbation,
            group_size=self.population.group_size,
            first_member=lease.first_member,
            quota=lease.quota,
            time_left_s=self.deadline - lease.leased_at,
            shaping=self.shaping,
        )

    def trials(self, first_member: int, n_members: int, *, in_bytes: bool = False) -> Trials:
        """The trials of some members of this step; `in_bytes` with a byte a parameter, which a relay asks for."""
        asked = self.population
        perturbation = asked.perturbation.in_bytes if in_bytes else asked.perturbation
        return Trials(asked.step, perturbation, asked.group_size, first_member, n_members, self.shaping)

    def took(self, now: float) -> None:
        """Takes note of a Result; once half of all have come, the deadline moves forward, to wait for no stragglers."""
        self.first_result_at = min(self.first_result_at, now)
        if len(self.leases) == 1:
            return  # whoever is alone keeps nobody waiting
        if 2 * self.n_members >= min(self.population.limit, self.next_member - self.first_member):
            grace_s = max(GRACE * (now - self.opened_at), LEAST_GRACE_S)
            self.deadline = min(self.deadline, self.opened_at + grace_s)

    @property
    def most_done(self) -> float:
        """The greatest share of a lease that any holder has done, of the leases that the step waits for."""
        return max((lease.n_received / lease.quota for lease in self.leases if lease.gates and lease.quota), default=0)

    @property
    def is_complete(self) -> bool:
        return self._totals.n_unfinished == 0

    @property
    def is_summed(self) -> bool:
        """Whether each Result brings an estimate."""
        return self._layout is not None

    @property
    def n_members(self) -> int:
        """Members whose losses have come back."""
        return self._totals.n_counted

    @property
    def has_results(self) -> bool:
        """Whether any results have come back, even ones that wait for a verdict."""
        return self.n_members > 0 or any(lease.n_received > 0 for lease in self.leases)

    @property
    def n_contributors(self) -> int:
        """Number of volunteers whose leases count, all seats of a crew among them, and of copies with results."""
        counted = [lease for lease in self.leases if lease.n_counted]
        counted += [copy for copy in self.copies if copy.n_received]
        return sum(len(lease.reputation.holders) for lease in counted)

    @property
    def variance_left(self) -> float | None:
        """Share of the losses' variance that control variates left; None where there are none."""
        return typical_variance(said for lease in self.leases if lease.n_counted for said in lease.variances)

    def collect(self) -> tuple[tuple[tuple[int, int], ...], Float32Array]:
        """Spans (first member, count) of the results so far, adjacent ones joined, and the losses, span after span."""
        spans: list[tuple[int, int]] = []
        losses: list[Float32Array] = []
        for lease in self.leases:
            if not lease.n_counted:
                continue
            losses += lease.losses
            if spans and sum(spans[-1]) == lease.first_member:
                spans[-1] = (spans[-1][0], spans[-1][1] + lease.n_received)
            else:
                spans.append((lease.first_member, lease.n_received))
        return tuple(spans), np.concatenate(losses)

    def moments(self) -> Int64Array | None:
        """The moments of the groups whose losses count, [groups, numbers of each]; None where nothing is observed."""
        if not self._n_observed:
            return None
        found = [moments for lease in self.leases if lease.n_counted for moments in lease.moments]
        return np.concatenate(found).reshape(-1, width(self._n_observed))

    def total_estimate(self, clipping: Clipping) -> CodedEstimate:
        """The sum of all estimates so far, rounded ones clipped; empty where volunteers send none.

        Exact ones were compared with their losses when they came, and are not clipped.
        """
        if self._layout is None:
            return NO_ESTIMATE
        size = self.population.group_size
        sums = [
            (lease.estimate, lease.n_finite // size)
            for lease in self.leases
            if lease.estimate is not None and lease.n_counted
        ]
        if self._exactness is not None:
            total = np.zeros(self._layout.size, dtype=np.int64)
            return encode_exactly(self._layout, sum((numbers for numbers, _ in sums), total))
        perturbation, step = self.population.perturbation, self.population.step
        total = clipping.total(sums, self._layout.size, perturbation.usual_length)
        if perturbation.sum_bits == 4:
            return encode_packed(self._layout, total, random_bytes(0, step, self._layout.size))
        return encode_estimate(self._layout, total)
