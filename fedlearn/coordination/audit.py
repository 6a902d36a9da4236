"""Whether results are true: the server computes the same trials and compares."""

from collections.abc import Callable, Sequence
from enum import Enum
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.coordination.open_step import Lease
from fedlearn.coordination.standing import Standing
from fedlearn.coordination.trail import Trail
from fedlearn.es.estimate import CodedEstimate, decode_estimate
from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.length import length_of
from fedlearn.es.shaping import bounded
from fedlearn.es.trials import TrialResults, Trials

LOSS_TOLERANCE = 0.1
"""Root mean square of the differences in a group, as a share of the standard deviation of the group's losses."""

SUM_TOLERANCE = 0.15
"""Length of the difference of two sums, as a share of the length of the server's own."""

ROUNDING = 3e-5
"""Allowed on top, relative to the losses: what honest kernels may differ by where members hardly differ."""

LEAST = 1e-7
"""Allowed on top, for losses that are almost zero."""

MOST_DIFFERENCE = 1e9
"""The greatest difference, in tolerances: the journal of audits is JSON, which has no infinity."""


class Claim(msgspec.Struct, frozen=True, eq=False):
    """What somebody said about these trials."""

    standing: Standing
    trials: Trials
    block: bytes
    losses: Float32Array
    """float32 [n_members]"""
    estimate: CodedEstimate
    lease: Lease
    """The lease that they belong to."""
    whole: "Claim | None" = None
    """The whole Result that these trials are from, where its exact sum is checked too."""
    trail: Trail | None = None
    """How they went through a crew; None where one machine computed them."""


class Verdict(msgspec.Struct, frozen=True):
    """The outcome of checking a claim, as an entry of `audits.jsonl`."""

    step: int
    first_member: int
    n_members: int
    identity: str
    name: str
    difference: float
    """In tolerances: the claim is false above 1."""
    place: int | None = None
    """Of a crew: which seat sent the first false thing, whose name and identity these then are; None where that is not
    known, and all of them answer for it."""

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
    own = msgspec.structs.replace(claim, losses=second.losses, estimate=second.estimate, whole=None)
    return (Finding.FALSE if judge(own, first, layout).is_true else Finding.UNDECIDABLE), verdict


def judge(claim: Claim, own: TrialResults, layout: ParameterLayout) -> Verdict:
    """How far the claim is from the server's own results, which are as in `compare`."""
    difference = loss_difference(claim.losses, own.losses, claim.trials.group_size)
    if claim.trials.perturbation.is_summed:
        difference = max(difference, sum_difference(claim.estimate, own.estimate, layout))
    if claim.whole is not None and not is_same_sum(claim.whole.estimate, own.estimate, layout):
        difference = MOST_DIFFERENCE
    return Verdict(
        step=claim.trials.step,
        first_member=claim.trials.first_member,
        n_members=claim.trials.n_members,
        identity=claim.standing.identity,
        name=claim.standing.name,
        difference=min(difference, MOST_DIFFERENCE),
    )


def loss_difference(claimed: Float32Array, own: Float32Array, group_size: int) -> float:
    """The greatest difference of any group, in tolerances."""
    return float(loss_differences(claimed, own, group_size).max())


def loss_differences(claimed: Float32Array, own: Float32Array, group_size: int) -> NDArray[np.float64]:
    """The difference of each group, in tolerances; infinite where of two losses only one is finite."""
    differences: NDArray[np.float64] = _gaps(own, claimed, group_size) / _allowed(own, group_size)
    return differences


def _gaps(one: Float32Array, other: Float32Array, group_size: int) -> NDArray[np.float64]:
    """Root mean square of the differences in each group; infinite where of two losses only one is finite."""
    ours, theirs = (bounded(losses).reshape(-1, group_size) for losses in (one, other))
    is_alike = (np.isfinite(ours) == np.isfinite(theirs)).all(axis=1)
    gap = np.where(np.isfinite(ours), ours, 0.0).astype(np.float64) - np.where(np.isfinite(theirs), theirs, 0.0)
    return np.where(is_alike, np.sqrt(np.mean(gap**2, axis=1)), np.inf)


def _allowed(own: Float32Array, group_size: int) -> NDArray[np.float64]:
    """How much each group may differ from the server's own losses."""
    groups = bounded(own).reshape(-1, group_size)
    found = np.where(np.isfinite(groups), groups, 0.0).astype(np.float64)
    allowed: NDArray[np.float64] = LOSS_TOLERANCE * found.std(axis=1) + ROUNDING * np.abs(found).max(axis=1) + LEAST
    return allowed


def first_false(stages: Sequence[Float32Array], group_size: int) -> int:
    """The seat of a crew that sent the first false thing of a group whose losses are false.

    `stages` has the losses [group_size] that the server finds by itself, those that follow from what the first seat
    sent if all behind it are honest, from what the second one sent, and so on; at last those that the crew claimed. So
    each seat turns one entry into the next. The differences of all n add up to more than a tolerance, so that one of
    them is an n-th of it or more, which is far more than honest machines differ.
    """
    found = [_gaps(before, after, group_size) for before, after in pairwise(stages)]
    gaps = np.concatenate(found) / _allowed(stages[0], group_size)
    return int(np.argmax(gaps >= min(1.0 / gaps.size, gaps.max())))


def is_same_sum(claimed: CodedEstimate, own: CodedEstimate, layout: ParameterLayout) -> bool:
    """Whether two sums are equal to the bit, as integers that follow from the same losses must be."""
    return np.array_equal(decode_estimate(layout, claimed), decode_estimate(layout, own))


def sum_difference(claimed: CodedEstimate, own: CodedEstimate, layout: ParameterLayout) -> float:
    """The difference of two rounded sums, in tolerances."""
    ours = decode_estimate(layout, own).astype(np.float64)
    gap = decode_estimate(layout, claimed) - ours
    length = length_of(ours)
    if length == 0.0:
        return float("inf") if gap.any() else 0.0
    return length_of(gap) / (SUM_TOLERANCE * length)
