"""A lease of members, and the results that have come back."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.steps.variance import VarianceLeft, variance_said
from fedlearn.es.layout import ParameterLayout
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.shaping import Shaping, bounded, n_counted
from fedlearn.es.sums.estimate import CodedEstimate, decode_estimate
from fedlearn.es.sums.exact_sum import complaint_of
from fedlearn.es.sums.moments import NO_MOMENTS, Int64Array, width
from fedlearn.es.sums.moments import complaint_of as complaint_of_moments

Float32Array = NDArray[np.float32]


class LeaseTotals(msgspec.Struct):
    """Totals over a step's leases, kept up to date so that a Result does not go through thousands of them.

    Nothing else changes them: whatever changes a lease does so within `recounted`.
    """

    n_counted: int = 0
    """Members whose losses count."""
    n_unfinished: int = 0
    """Leases that the step waits for."""

    def add(self, lease: "Lease", times: int = 1) -> None:
        """Counts a lease; -1 `times` takes it out."""
        self.n_counted += times * lease.n_counted
        self.n_unfinished += times * lease.is_waited_for

    @contextmanager
    def recounted(self, lease: "Lease") -> Iterator[None]:
        """Counts a lease anew, which changes meanwhile."""
        self.add(lease, -1)
        try:
            yield
        finally:
            self.add(lease)


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
    reputation: Reputation = msgspec.field(default_factory=lambda: Reputation(""))
    """The reputation of the holder."""
    leased_at: float = 0.0
    duration_s: float = 0.0
    """Seconds from the lease to the last Result."""
    losses: list[Float32Array] = msgspec.field(default_factory=list)
    n_observed: int = 0
    """Number of numbers in an observation whose moments come with each Result."""
    moments: list[Int64Array] = msgspec.field(default_factory=list)
    """The moments of the groups of each Result."""
    estimate: NDArray[np.int64] | None = None
    """Sum of the estimates that came with finite groups; None where none did."""
    variances: list[VarianceLeft] = msgspec.field(default_factory=list)
    """The share of variance in each Result, even of members that were handed over."""
    n_received: int = 0
    n_finite: int = 0
    """Members with finite losses; others cost their sender nothing, and say nothing about its speed."""
    totals: LeaseTotals = msgspec.field(default_factory=LeaseTotals)
    """The totals of the step, in which the lease is counted."""
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
        moments: Int64Array = NO_MOMENTS,
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
        if problem := complaint_of_moments(moments, n_groups=losses.size // group_size, n_numbers=self.n_observed):
            return f"Result: {problem}"
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
        self.moments.append(moments)
        self.variances.append(variance_said(variance_left, losses.size))
        with self.totals.recounted(self):
            self.n_received += losses.size
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

    def moments_of(self, first_group: int, end_group: int) -> Int64Array:
        """Moments of some groups that have come back, counted from the lease's first one."""
        each = width(self.n_observed)
        return np.concatenate(self.moments)[first_group * each : end_group * each]

    def hand_over(self) -> tuple[Float32Array, NDArray[np.int64] | None, Int64Array]:
        """Hands over what has come since the last time: losses, the sum of their estimates, and their moments."""
        losses, self.losses = np.concatenate(self.losses), []
        moments, self.moments = np.concatenate(self.moments), []
        estimate, self.estimate = self.estimate, None
        return losses, estimate, moments

    def count(self) -> None:
        """Counts the results of a copy like those of any other lease."""
        with self.totals.recounted(self):
            self.is_copy = False

    def release(self) -> None:
        """Counts the results that were held."""
        with self.totals.recounted(self):
            self.is_held = False

    def end(self) -> None:
        """Ends the lease with the results so far, since its holder left."""
        with self.totals.recounted(self):
            self.gates = False
            self.quota = self.n_received

    def void(self) -> None:
        """Ends the lease without results, since its holder cannot be trusted."""
        with self.totals.recounted(self):
            self.gates = False
            self.quota = self.n_received = 0
        self.n_finite = 0
        self.losses.clear()
        self.moments.clear()
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
