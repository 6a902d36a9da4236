"""A step while it is open: its leases, and the results that have come back."""

import math
from bisect import bisect_right
from typing import final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.steps.variance import VarianceLeft, typical_variance, variance_said
from fedlearn.es.layout import ParameterLayout
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.shaping import Shaping, bounded, n_counted
from fedlearn.es.strategy import Population
from fedlearn.es.sums.clipping import Clipping
from fedlearn.es.sums.estimate import NO_ESTIMATE, CodedEstimate, decode_estimate, encode_estimate, encode_exactly
from fedlearn.es.sums.exact_sum import complaint_of
from fedlearn.es.trials import Trials
from fedlearn.tasks.blocks import NO_BLOCK
from fedlearn.wire.messages import Assignment

Float32Array = NDArray[np.float32]


class LeaseTotals(msgspec.Struct):
    """Totals over a step's leases, kept up to date so that a Result does not go through thousands of them."""

    n_received: int = 0
    n_unfinished: int = 0
    """Number of leases that the step waits for."""


LEAST_DONE = 0.75
"""Share of the best volunteers' progress that a volunteer must have reached so as not to be late."""


class Exactness(msgspec.Struct, frozen=True):
    """The population and shaping that exact sums are checked against."""

    shaping: Shaping
    perturbation: Perturbation


class Lease(msgspec.Struct):
    """A private range of members, and the losses that have come back, from its beginning on."""

    first_member: int
    quota: int
    layout: ParameterLayout | None = None
    """The layout of the estimate that comes with each Result; None where none comes."""
    exactness: Exactness | None = None
    """What the exact sums are checked against; None where the estimates are rounded."""
    standing: Reputation = msgspec.field(default_factory=lambda: Reputation(""))
    """The reputation of the holder."""
    leased_at: float = 0.0
    duration_s: float = 0.0
    """Seconds from the lease to the last Result."""
    losses: list[Float32Array] = msgspec.field(default_factory=list)
    estimate: NDArray[np.int64] | None = None
    """Sum of the estimates that came with finite groups; None where none did."""
    variances: list[VarianceLeft] = msgspec.field(default_factory=list)
    """The share of variance in each Result, even of members that were handed over."""
    n_received: int = 0
    n_finite: int = 0
    """Members with finite losses; others cost their sender nothing, and say nothing about its speed."""
    tally: LeaseTotals = msgspec.field(default_factory=LeaseTotals)
    """The totals of the step."""
    gates: bool = True
    """Whether the step waits for the lease."""
    is_held: bool = False
    """Whether its results do not count until they are checked."""
    is_copy: bool = False
    """Whether its members are those of other leases: its results are then compared with theirs, and do not count."""
    overlaps: "list[Overlap]" = msgspec.field(default_factory=list)
    """The overlaps with copies of its members; those of a copy are with the leases that it copies."""

    @property
    def n_counted(self) -> int:
        """Members whose losses count."""
        return 0 if self.is_held or self.is_copy else self.n_received

    @property
    def end_member(self) -> int:
        """The member behind the last one that is in."""
        return self.first_member + self.n_received

    @property
    def n_new(self) -> int:
        """Number of members whose losses were not handed over."""
        return sum(losses.size for losses in self.losses)

    @property
    def is_done(self) -> bool:
        """Whether no more results are expected."""
        return self.n_received == self.quota

    @property
    def is_waited_for(self) -> bool:
        """Whether the step cannot close without more of its results, or without a verdict on them."""
        return self.gates and (self.is_held or not self.is_done)

    def is_late(self, best: float) -> bool:
        """Whether the step waited for it without success; `best` is the greatest share that anybody has done of a
        lease."""
        return self.gates and self.n_received < LEAST_DONE * best * self.quota

    def take(
        self,
        first_member: int,
        losses: Float32Array,
        estimate: CodedEstimate,
        group_size: int,
        *,
        variance_left: float | None = None,
    ) -> str:
        """Takes the next results of the lease; gives a description of what is wrong with them, else an empty text."""
        expected = self.first_member + self.n_received
        left = self.quota - self.n_received
        if first_member != expected:
            return f"first member of a Result: expected {expected}, got {first_member}"
        if losses.ndim != 1 or not 0 < losses.size <= left or losses.size % group_size:
            return (
                f"losses of a Result: expected whole groups of {group_size}, at most {left} members, "
                f"got shape {list(losses.shape)}"
            )
        losses = bounded(losses)
        if self.layout is not None:
            try:
                numbers = decode_estimate(self.layout, estimate).astype(np.int64)
            except ValueError as error:
                return f"Result: {error}"
            if problem := self._problem_of(numbers, losses, group_size):
                return f"Result: {problem}"
            if n_counted(losses, group_size):
                self.estimate = numbers if self.estimate is None else self.estimate + numbers
        elif estimate.n_bytes:
            return (
                f"estimate of a Result: expected none in a run that replays losses, got {estimate.numbers.size} numbers"
            )
        self.losses.append(losses)
        self.variances.append(variance_said(variance_left, losses.size))
        self.n_received += losses.size
        if not self.is_held:
            self.tally.n_received += 0 if self.is_copy else losses.size
            self.tally.n_unfinished -= self.gates and self.is_done
        self.n_finite += int(np.count_nonzero(np.isfinite(losses)))
        return ""

    def _problem_of(self, numbers: NDArray[np.int64], losses: Float32Array, group_size: int) -> str:
        if self.exactness is None or self.layout is None:
            return ""
        utilities = self.exactness.shaping.utilities(losses, group_size)
        return complaint_of(numbers, utilities, self.layout, self.exactness.perturbation)

    def losses_of(self, first_member: int, end_member: int) -> Float32Array:
        """Losses of some members that have come back."""
        return np.concatenate(self.losses)[first_member - self.first_member : end_member - self.first_member]

    def hand_over(self) -> tuple[Float32Array, NDArray[np.int64] | None]:
        """Hands over what has come since the last time: losses, and the sum of their estimates."""
        losses, self.losses = np.concatenate(self.losses), []
        estimate, self.estimate = self.estimate, None
        return losses, estimate

    def release(self) -> None:
        """Counts the results that were held."""
        if self.is_held:
            self.tally.n_unfinished -= self.gates and self.is_done
            self.is_held = False
            self.tally.n_received += self.n_counted

    def end(self) -> None:
        """Ends the lease with the results so far, since its holder left."""
        self.tally.n_unfinished -= self.is_waited_for
        self.gates = False
        self.quota = self.n_received

    def void(self) -> None:
        """Ends the lease without results, since its holder cannot be trusted."""
        self.tally.n_unfinished -= self.is_waited_for
        self.tally.n_received -= self.n_counted
        self.gates = False
        self.quota = self.n_received = self.n_finite = 0
        self.losses.clear()
        self.estimate = None


class Overlap(msgspec.Struct, eq=False):
    """A copy and a lease that have members in common, in whole groups."""

    copy: Lease
    original: Lease
    compared: int
    """The member before which all members were compared."""

    def uncompared(self) -> tuple[int, int]:
        """The first member to compare and the one behind the last, as far as both have come."""
        return self.compared, min(self.copy.end_member, self.original.end_member)


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
        self.opened_at = opened_at
        self.deadline = deadline
        self.first_result_at = math.inf
        self.first_member = first_member
        self.next_member = first_member
        self.leases: list[Lease] = []
        self.copies: list[Lease] = []
        self._tally = LeaseTotals()

    def lease(
        self, quota: int, standing: Reputation | None = None, *, gates: bool = True, is_held: bool = False
    ) -> Lease:
        """The next private range of `quota` members; see Lease."""
        lease = self.lease_again(
            self.next_member, quota, standing or Reputation(""), gates=gates, is_held=is_held, now=self.opened_at
        )
        self.next_member += quota
        return lease

    def lease_again(
        self, first_member: int, quota: int, standing: Reputation, *, gates: bool = True, is_held: bool, now: float
    ) -> Lease:
        """Leases a range that nobody leases any more."""
        lease = Lease(
            first_member,
            quota,
            self._layout,
            self._exactness,
            standing,
            leased_at=now,
            tally=self._tally,
            gates=gates,
            is_held=is_held,
        )
        self._tally.n_unfinished += lease.is_waited_for
        self.leases.append(lease)
        return lease

    def copy(self, first_member: int, quota: int, standing: Reputation) -> Lease:
        """Leases a copy of members that others lease; leases of the same holder are not compared."""
        copy = Lease(
            first_member,
            quota,
            self._layout,
            self._exactness,
            standing,
            leased_at=self.opened_at,
            tally=self._tally,
            is_copy=True,
        )
        self._tally.n_unfinished += copy.is_waited_for
        self.copies.append(copy)
        begin = bisect_right(self.leases, first_member, key=lambda lease: lease.first_member) - 1
        for lease in self.leases[begin:]:
            if lease.first_member >= first_member + quota:
                break
            if lease.standing.identity != standing.identity:
                overlap = Overlap(copy, lease, max(first_member, lease.first_member))
                copy.overlaps.append(overlap)
                lease.overlaps.append(overlap)
        return copy

    def count_a_copy(self) -> None:
        """Lets a copy count where nothing else does: the holders of its members sent no results."""
        begun = (copy for copy in self.copies if copy.n_received and not copy.is_held)
        copy = max(begun, key=lambda copy: copy.n_received, default=None)
        if copy is not None and self.n_members == 0:
            copy.is_copy = False
            self._tally.n_received += copy.n_received
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

    def trials(self, first_member: int, n_members: int) -> Trials:
        """The trials of some members of this step."""
        asked = self.population
        return Trials(asked.step, asked.perturbation, asked.group_size, first_member, n_members, self.shaping)

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
        return self._tally.n_unfinished == 0

    @property
    def is_summed(self) -> bool:
        """Whether each Result brings an estimate."""
        return self._layout is not None

    @property
    def n_members(self) -> int:
        """Members whose losses have come back."""
        return self._tally.n_received

    @property
    def has_results(self) -> bool:
        """Whether any results have come back, even ones that wait for a verdict."""
        return self.n_members > 0 or any(lease.n_received > 0 for lease in self.leases)

    @property
    def n_contributors(self) -> int:
        """Number of volunteers whose leases count, all seats of a crew among them, and of copies with results."""
        counted = [lease for lease in self.leases if lease.n_counted]
        counted += [copy for copy in self.copies if copy.n_received]
        return sum(len(lease.standing.holders) for lease in counted)

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
        return encode_estimate(self._layout, clipping.total(sums, self._layout.size))
