"""A step while it is open: who leases which members, and what came back."""

from typing import final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.coordination.standing import Standing
from fedlearn.es.clipping import Clipping
from fedlearn.es.estimate import NO_ESTIMATE, CodedEstimate, decode_estimate, encode_estimate, encode_exactly
from fedlearn.es.exact_sum import complaint_of
from fedlearn.es.layout import ParameterLayout
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.shaping import Shaping, bounded, n_counted
from fedlearn.es.strategy import Population
from fedlearn.wire.messages import Assignment

Float32Array = NDArray[np.float32]


class Tally(msgspec.Struct):
    """What a step's leases amount to, kept as they change: thousands of them are not gone through for each Result."""

    n_received: int = 0
    n_unfinished: int = 0
    """Leases that the step waits for."""


LEAST_DONE = 0.75
"""Of what the best have done of theirs; who has less is late."""


class Exactness(msgspec.Struct, frozen=True):
    """What sums are held to that are integers to the last unit."""

    shaping: Shaping
    perturbation: Perturbation


class Lease(msgspec.Struct):
    """A private range of members, and the losses that came back for its beginning."""

    first_member: int
    quota: int
    layout: ParameterLayout | None = None
    """Of the estimate that comes with each Result; None where none comes."""
    exactness: Exactness | None = None
    """None where the estimates are rounded."""
    standing: Standing = msgspec.field(default_factory=lambda: Standing(""))
    """Of who holds it."""
    duration_s: float = 0.0
    """From the opening of the step to the last Result."""
    losses: list[Float32Array] = msgspec.field(default_factory=list)
    estimate: NDArray[np.int64] | None = None
    """Sum of the estimates that came with a group of finite losses: without one there is nothing to estimate from."""
    n_received: int = 0
    n_finite: int = 0
    """Of those received; the others cost their sender nothing, and say nothing about its speed."""
    tally: Tally = msgspec.field(default_factory=Tally)
    """Of all leases of the step."""
    gates: bool = True
    """Whether the step waits for it."""
    is_held: bool = False
    """Whether its results don't count yet: they are checked first."""

    @property
    def n_counted(self) -> int:
        """Members whose losses count."""
        return 0 if self.is_held else self.n_received

    @property
    def is_done(self) -> bool:
        """Whether nothing more is to come."""
        return self.n_received == self.quota

    @property
    def is_waited_for(self) -> bool:
        """Whether the step can't close without more of it, or without a verdict on it."""
        return self.gates and (self.is_held or not self.is_done)

    def is_late(self, best: float) -> bool:
        """Whether the step waited for it in vain, while the best had this share of theirs done."""
        return self.gates and self.n_received < LEAST_DONE * best * self.quota

    def take(self, first_member: int, losses: Float32Array, estimate: CodedEstimate, group_size: int) -> str:
        """Counts the next results of the lease; gives what is wrong with them, or an empty text."""
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
        self.n_received += losses.size
        if not self.is_held:
            self.tally.n_received += losses.size
            self.tally.n_unfinished -= self.gates and self.is_done
        self.n_finite += int(np.count_nonzero(np.isfinite(losses)))
        return ""

    def _problem_of(self, numbers: NDArray[np.int64], losses: Float32Array, group_size: int) -> str:
        if self.exactness is None or self.layout is None:
            return ""
        utilities = self.exactness.shaping.utilities(losses, group_size)
        return complaint_of(numbers, utilities, self.layout, self.exactness.perturbation)

    def release(self) -> None:
        """What was held counts from now on."""
        if self.is_held:
            self.tally.n_unfinished -= self.gates and self.is_done
            self.is_held = False
            self.tally.n_received += self.n_received

    def end(self) -> None:
        """Ends the lease where its results do: its holder left."""
        self.tally.n_unfinished -= self.is_waited_for
        self.gates = False
        self.quota = self.n_received

    def void(self) -> None:
        """Ends the lease without any result: its holder can't be trusted."""
        self.tally.n_unfinished -= self.is_waited_for
        self.tally.n_received -= self.n_counted
        self.gates = False
        self.quota = self.n_received = self.n_finite = 0
        self.losses.clear()
        self.estimate = None


GRACE = 2.0
"""Once half the population is in, a step stays open for so many times what that took,"""

LEAST_GRACE_S = 0.1
"""but for this long at least; whoever is later is cut, without harm to what it has sent."""


@final
class OpenStep:
    """The population that a step asks for, cut into leases; member numbers begin at `first_member`."""

    def __init__(
        self,
        population: Population,
        *,
        opened_at: float,
        deadline: float,
        first_member: int,
        layout: ParameterLayout,
        shaping: Shaping | None = None,
    ) -> None:
        """`shaping`: with which volunteers sum their own members' gradients; None where those are replayed."""
        self.population = population
        self.shaping = shaping
        self._exactness = Exactness(shaping, population.perturbation) if shaping is not None else None
        self._layout = layout if shaping is not None or population.perturbation.is_summed else None
        self.opened_at = opened_at
        self.deadline = deadline
        self.is_overdue = False
        """Whether its first result came after the deadline: a group takes longer than a step may."""
        self.first_member = first_member
        self.next_member = first_member
        self.leases: list[Lease] = []
        self._tally = Tally()

    def lease(
        self, quota: int, standing: Standing | None = None, *, gates: bool = True, is_held: bool = False
    ) -> Lease:
        """The next private range of `quota` members; see Lease."""
        holder = standing or Standing("")
        lease = Lease(
            self.next_member,
            quota,
            self._layout,
            self._exactness,
            holder,
            tally=self._tally,
            gates=gates,
            is_held=is_held,
        )
        self._tally.n_unfinished += lease.is_waited_for
        self.next_member += quota
        self.leases.append(lease)
        return lease

    def assignment(self, lease: Lease, block: bytes) -> Assignment:
        """What the holder of a lease is told, now that the step is opened."""
        return Assignment(
            step=self.population.step,
            block=block,
            perturbation=self.population.perturbation,
            group_size=self.population.group_size,
            first_member=lease.first_member,
            quota=lease.quota,
            time_left_s=self.deadline - self.opened_at,
            shaping=self.shaping,
        )

    def hurry(self, now: float) -> None:
        """Brings the deadline forward when half the population is in: nobody waits long for a straggler."""
        if 2 * self.n_members >= min(self.population.limit, self.next_member - self.first_member):
            grace_s = max(GRACE * (now - self.opened_at), LEAST_GRACE_S)
            self.deadline = min(self.deadline, self.opened_at + grace_s)

    @property
    def most_done(self) -> float:
        """Share of its lease that the best of those that the step waits for has done."""
        return max((lease.n_received / lease.quota for lease in self.leases if lease.gates and lease.quota), default=0)

    @property
    def is_complete(self) -> bool:
        return self._tally.n_unfinished == 0

    @property
    def n_members(self) -> int:
        """Members whose losses are in."""
        return self._tally.n_received

    @property
    def has_results(self) -> bool:
        """Whether anything is in, be it that it waits for a verdict."""
        return self.n_members > 0 or any(lease.n_received > 0 for lease in self.leases)

    @property
    def n_contributors(self) -> int:
        return sum(lease.n_counted > 0 for lease in self.leases)

    def collect(self) -> tuple[tuple[tuple[int, int], ...], Float32Array]:
        """Spans (first member, count) of all that is in, adjacent ones joined, and their losses, span after span."""
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
        """The sum of all estimates that are in, none of them out of line; empty where none come.

        Exact ones were held to their losses when they came, and are left as they are.
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
