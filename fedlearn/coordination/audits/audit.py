"""Whether results are true: the server computes the same trials and compares."""

import math
from collections.abc import Callable, Sequence
from enum import Enum
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.coordination.audits.tolerance import LOOSE, Tolerance
from fedlearn.coordination.leases.lease import Lease
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.work.activation_log import ActivationLog
from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.shaping import bounded
from fedlearn.es.sums.estimate import CodedEstimate, decode_estimate, rounding_variance
from fedlearn.es.sums.moments import NO_MOMENTS, UNIT, Int64Array
from fedlearn.es.sums.norm import l2_norm
from fedlearn.es.trials import TrialResults, Trials

MOST_DIFFERENCE = 1e9
"""The greatest difference, in tolerances: the journal of audits is JSON, which has no infinity."""


ROUNDINGS = 5.0
"""The variance that rounding may add to the distance of a relay's sum, in variances of the server's own rounding: that
of its parts is at most four times as much, since their greatest numbers may lie just above a power of two."""


class Claim(msgspec.Struct, frozen=True, eq=False):
    """The results that a volunteer or a crew reported for some trials."""

    reputation: Reputation
    trials: Trials
    block: bytes
    losses: Float32Array
    """Reported losses, float32 [n_members]."""
    estimate: CodedEstimate
    lease: Lease
    """The lease that they belong to."""
    moments: Int64Array = NO_MOMENTS
    """Reported moments of what the members of each group observed."""
    tolerance: Tolerance = LOOSE
    """How much honest machines may differ from one another here."""
    whole: "Claim | None" = None
    """The whole Result that these trials are from, where its exact sum is checked as well."""
    is_owed: bool = False
    """Whether members wait for the verdict, so that nothing else may take its place."""
    log: ActivationLog | None = None
    """The route of these trials through a crew; None where one machine computed them."""

    def through(self, log: ActivationLog) -> "Claim":
        """The same claim about trials of a crew, where a difference in a last digit may flip a value that travels in
        few bits."""
        tolerance = self.tolerance if log.wire == "float32" else LOOSE
        return msgspec.structs.replace(self, log=log, tolerance=tolerance)


class Verdict(msgspec.Struct, frozen=True):
    """The outcome of checking a claim, as an entry of `audits.jsonl`."""

    step: int
    first_member: int
    n_members: int
    identity: str
    name: str
    difference: float
    """Distance to the server's own results, in tolerances; the claim is false above 1."""
    place: int | None = None
    """The seat of a crew that sent the first false message, whose name and identity are given here; None where the seat
    is not known, and all seats are responsible."""
    adds_up: bool = False
    """Whether the claim is false only together with earlier ones: its sender's results are always slightly off."""

    @property
    def is_true(self) -> bool:
        return self.difference <= 1.0


class Finding(Enum):
    """Whether a claim is true."""

    TRUE = "it is what the server found"
    FALSE = "it is not"
    UNDECIDABLE = "the server does not find the same twice itself"


def compare(claim: Claim, evaluate: Callable[[], TrialResults], layout: ParameterLayout) -> tuple[Finding, Verdict]:
    """Checks a claim; `evaluate` is called a second time only where the claim seems false.

    `evaluate` gives the losses of the claim's trials, and their rounded sum, or, where the claim has a `whole`, the
    exact sum of the losses in that.
    """
    first = evaluate()
    verdict = judge(claim, first, layout)
    if verdict.is_true:
        return Finding.TRUE, verdict
    second = evaluate()
    own = msgspec.structs.replace(
        claim, losses=second.losses, estimate=second.estimate, moments=second.moments, whole=None
    )
    return (Finding.FALSE if judge(own, first, layout).is_true else Finding.UNDECIDABLE), verdict


def judge(claim: Claim, own: TrialResults, layout: ParameterLayout) -> Verdict:
    """Measures how far the claim is from the server's own results, which are as in `compare`."""
    tolerance = claim.tolerance
    difference = loss_difference(claim.losses, own.losses, claim.trials.group_size, tolerance)
    moved = moment_differences(claim.moments, own.moments, claim.trials.n_groups, tolerance)
    difference = max(difference, float(moved.max()))
    if claim.trials.perturbation.is_summed:
        difference = max(difference, sum_difference(claim.estimate, own.estimate, layout, tolerance))
    if claim.whole is not None and not is_same_sum(claim.whole.estimate, own.estimate, layout):
        difference = MOST_DIFFERENCE
    return Verdict(
        step=claim.trials.step,
        first_member=claim.trials.first_member,
        n_members=claim.trials.n_members,
        identity=claim.reputation.identity,
        name=claim.reputation.name,
        difference=min(difference, MOST_DIFFERENCE),
    )


def loss_difference(claimed: Float32Array, own: Float32Array, group_size: int, tolerance: Tolerance = LOOSE) -> float:
    """The greatest difference of any group, in tolerances."""
    return float(loss_differences(claimed, own, group_size, tolerance).max())


def loss_differences(
    claimed: Float32Array, own: Float32Array, group_size: int, tolerance: Tolerance = LOOSE
) -> NDArray[np.float64]:
    """The difference of each group, in tolerances; infinite where of two losses only one is finite."""
    differences: NDArray[np.float64] = loss_gaps(own, claimed, group_size) / tolerance.allowed(own, group_size)
    return differences


def loss_gaps(one: Float32Array, other: Float32Array, group_size: int) -> NDArray[np.float64]:
    """Root mean square of the differences in each group; infinite where of two losses only one is finite."""
    ours, theirs = (bounded(losses).reshape(-1, group_size) for losses in (one, other))
    is_alike = (np.isfinite(ours) == np.isfinite(theirs)).all(axis=1)
    gap = np.where(np.isfinite(ours), ours, 0.0).astype(np.float64) - np.where(np.isfinite(theirs), theirs, 0.0)
    return np.where(is_alike, np.sqrt(np.mean(gap**2, axis=1)), np.inf)


def moment_differences(
    claimed: Int64Array, own: Int64Array, n_groups: int, tolerance: Tolerance = LOOSE
) -> NDArray[np.float64]:
    """The greatest difference of each group's moments, in tolerances: of the count as a share of it, of means in
    deviations, and of mean squares as a share of them, or of a square deviation where they are less."""
    if not own.size:
        return np.zeros(n_groups)
    rows = own.reshape(n_groups, -1).astype(np.float64)
    counts, n = np.maximum(rows[:, :1], 1.0), rows.shape[1] // 2
    squares = np.maximum(rows[:, 1 + n :], counts * UNIT**2)
    scales = np.concatenate([counts, np.sqrt(squares * counts), squares], axis=1)
    gaps: NDArray[np.float64] = np.abs(claimed.reshape(n_groups, -1) - rows) / scales
    differences: NDArray[np.float64] = gaps.max(axis=1) / tolerance.share
    return differences


def first_false(
    legs: Sequence[TrialResults], layout: ParameterLayout, group_size: int, tolerance: Tolerance = LOOSE
) -> int:
    """The leg of the way of members through a crew after which the first false message was sent, where their results
    are false.

    `legs` has what the server finds by itself, what follows from what was sent after the first leg if all behind it are
    honest, after the second one, and so on; at last what the crew claimed. So each leg turns one entry into the next.
    The differences of all n add up to more than a tolerance, so that one of them is an n-th of it or more, which is far
    more than honest machines differ.
    """
    own, allowed = legs[0], tolerance.allowed(legs[0].losses, group_size)
    found = [loss_gaps(before.losses, after.losses, group_size) / allowed for before, after in pairwise(legs)]
    gaps = np.array([gap.max() for gap in found])
    if own.estimate.is_there:
        length = tolerance.sums * l2_norm(decode_estimate(layout, own.estimate).astype(np.float64))
        numbers = [decode_estimate(layout, each.estimate).astype(np.float64) for each in legs]
        apart = np.array([l2_norm(after - before) for before, after in pairwise(numbers)])
        gaps = np.maximum(gaps, apart / length if length else np.where(apart > 0.0, np.inf, 0.0))
    return int(np.argmax(gaps >= min(1.0 / gaps.size, gaps.max())))


def is_same_sum(claimed: CodedEstimate, own: CodedEstimate, layout: ParameterLayout) -> bool:
    """Whether two sums are equal to the bit, as integers that follow from the same losses must be."""
    return np.array_equal(decode_estimate(layout, claimed), decode_estimate(layout, own))


def sum_difference(
    claimed: CodedEstimate, own: CodedEstimate, layout: ParameterLayout, tolerance: Tolerance = LOOSE
) -> float:
    """The difference of two rounded sums, in tolerances.

    A relay adds what its volunteers have rounded, each on its own, so what rounding may add is taken off its distance.
    """
    ours = decode_estimate(layout, own).astype(np.float64)
    gap = decode_estimate(layout, claimed) - ours
    length, distance = l2_norm(ours), l2_norm(gap)
    if claimed.is_exact:
        distance = math.sqrt(max(distance**2 - ROUNDINGS * rounding_variance(layout, own), 0.0))
    if length == 0.0:
        return float("inf") if distance > 0.0 else 0.0
    return distance / (tolerance.sums * length)
