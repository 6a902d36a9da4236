import math
from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from fedlearn.coordination.audits.audit import (
    Claim,
    Finding,
    compare,
    first_false,
    loss_difference,
    moment_differences,
    sum_difference,
)
from fedlearn.coordination.audits.tolerance import FLOATS, LOCAL_STEPS, LOOSE
from fedlearn.coordination.leases.lease import Lease
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.es.layout import Float32Array, ParameterLayout, TensorSpec
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.sums.estimate import (
    NO_ESTIMATE,
    CodedEstimate,
    decode_estimate,
    encode_estimate,
    encode_exactly,
    encode_randomly,
)
from fedlearn.es.sums.moments import NO_MOMENTS, UNIT, Int64Array
from fedlearn.es.trials import TrialResults, Trials

GROUP = 64
LAYOUT = ParameterLayout((TensorSpec("vector", (500,)),))
GENERATOR = np.random.default_rng(0)


def losses(n_groups: int = 1) -> Float32Array:
    return GENERATOR.normal(3.0, 0.02, n_groups * GROUP).astype(np.float32)


def coded(numbers: Float32Array) -> CodedEstimate:
    return encode_estimate(LAYOUT, numbers.astype(np.int64))


def test_honest_losses_differ_by_nothing_that_counts() -> None:
    own = losses()
    assert loss_difference(own, own, GROUP) == 0.0
    assert loss_difference(own + np.float32(1e-5), own, GROUP) < 0.1


@pytest.mark.parametrize(
    "lie",
    [
        lambda own: 6.0 - own,
        lambda own: GENERATOR.permutation(own),
        lambda own: np.full_like(own, own.mean()),
        lambda own: own * 1.01,
        lambda own: np.zeros_like(own),
        lambda own: np.where(np.arange(own.size) < 4, own - 1, own).astype(np.float32),
        lambda own: np.where(np.arange(own.size) < 1, np.nan, own).astype(np.float32),
    ],
)
def test_false_losses_differ(lie: "object") -> None:
    assert callable(lie)
    own = losses()
    assert loss_difference(lie(own), own, GROUP) > 1.0


def test_one_false_group_among_many_is_enough() -> None:
    own = losses(50)
    claimed = own.copy()
    claimed[-GROUP:] = own[-GROUP:][::-1]
    assert loss_difference(claimed, own, GROUP) > 1.0


def test_tolerance_is_a_share_of_the_spread_and_what_rounding_leaves() -> None:
    own = np.tile(np.array([-1.0, 1.0], dtype=np.float32), GROUP // 2)
    allowed = LOOSE.share + LOOSE.relative
    for factor in (0.99, 1.01):
        assert (loss_difference(own + np.float32(factor * allowed), own, GROUP) > 1.0) == (factor > 1.0)


def test_members_that_hardly_differ_may_differ_by_rounding() -> None:
    own = np.full(GROUP, 5.0, dtype=np.float32)
    assert loss_difference(own + np.float32(1e-4), own, GROUP) < 1.0
    assert loss_difference(own + np.float32(5e-3), own, GROUP) > 1.0


@pytest.mark.parametrize("broken", [math.nan, math.inf, 1e30])
def test_broken_losses_must_be_broken_for_both(broken: float) -> None:
    own = losses()
    own[3] = broken
    assert loss_difference(own, own, GROUP) == 0.0
    assert loss_difference(losses(), own, GROUP) == math.inf


def test_honest_sums_differ_by_what_rounding_to_bytes_does() -> None:
    own = GENERATOR.normal(0, 1e5, 500).astype(np.float32)
    assert sum_difference(coded(own * np.float32(1.0001)), coded(own), LAYOUT) < 0.5


def test_false_sums_differ() -> None:
    own = GENERATOR.normal(0, 1e5, 500).astype(np.float32)
    one_more = own.copy()
    one_more[7] += 1e6
    for claimed in (-own, own * 2, own * 0, GENERATOR.permutation(own), one_more):
        assert sum_difference(coded(claimed), coded(own), LAYOUT) > 1.0
    assert sum_difference(coded(own * np.float32(1 + 0.8 * LOOSE.sums)), coded(own), LAYOUT) < 1.0


def test_sum_of_nothing_must_be_nothing() -> None:
    nothing = np.zeros(500, dtype=np.float32)
    assert sum_difference(coded(nothing), coded(nothing), LAYOUT) == 0.0
    assert sum_difference(coded(nothing + 1), coded(nothing), LAYOUT) == math.inf


def test_losses_that_are_all_zero_may_differ_by_next_to_nothing() -> None:
    own = np.zeros(GROUP, dtype=np.float32)
    assert loss_difference(own + np.float32(1e-8), own, GROUP) < 1.0
    assert loss_difference(own + np.float32(1e-6), own, GROUP) > 1.0


def test_small_losses_may_differ_by_little() -> None:
    own = (losses() * np.float32(1e-4)).astype(np.float32)
    assert loss_difference(own * np.float32(1 + 1e-5), own, GROUP) < 0.5
    assert loss_difference(own[::-1], own, GROUP) > 1.0


def claim(found: Float32Array) -> Claim:
    trials = Trials(3, Perturbation(0.1, 1), GROUP, 0, found.size)
    return Claim(Reputation("Ada"), trials, b"", found, NO_ESTIMATE, Lease(0, found.size))


@pytest.mark.parametrize(
    ("own", "finding", "n_evaluated"),
    [
        ([1.0, 1.0], Finding.TRUE, 1),
        ([-1.0, -1.0], Finding.FALSE, 2),
        ([-1.0, 2.0], Finding.UNDECIDABLE, 2),
    ],
)
def test_claim_is_evaluated_again_only_where_it_does_not_agree(
    own: list[float], finding: Finding, n_evaluated: int
) -> None:
    claimed = losses()
    evaluated: list[Float32Array] = []

    def evaluate() -> TrialResults:
        evaluated.append(np.float32(own[len(evaluated)]) * claimed)
        return TrialResults(evaluated[-1])

    found, verdict = compare(claim(claimed), evaluate, LAYOUT)
    assert (found, len(evaluated)) == (finding, n_evaluated)
    assert (verdict.identity, verdict.is_true) == ("Ada", finding is Finding.TRUE)


def results(of_legs: list[Float32Array]) -> list[TrialResults]:
    return [TrialResults(losses) for losses in of_legs]


def test_the_leg_after_which_a_sum_is_false_is_the_first_false_one() -> None:
    own = losses()
    true, other = (coded(GENERATOR.normal(0, 1e6, 500).astype(np.float32)) for _ in range(2))
    near = coded((decode_estimate(LAYOUT, true) * 1.001).astype(np.float32))
    for place in range(4):
        sums = [true, near, near, near, near][: place + 1] + [other] * (4 - place)
        assert first_false([TrialResults(own, each) for each in sums], LAYOUT, GROUP) == place
    nothing = coded(np.zeros(500, dtype=np.float32))
    assert first_false([TrialResults(own, each) for each in (nothing, nothing, other)], LAYOUT, GROUP) == 1


def test_the_seat_after_which_losses_are_false_is_the_first_false_one() -> None:
    own = losses()
    lie, other = 6.0 - own, GENERATOR.permutation(own)
    assert first_false(results([own, lie, lie, lie]), LAYOUT, GROUP) == 0
    assert first_false(results([own, own, lie, lie]), LAYOUT, GROUP) == 1
    assert first_false(results([own, own, own, lie]), LAYOUT, GROUP) == 2
    assert first_false(results([own, lie, own, other]), LAYOUT, GROUP) == 0, "the first of several"
    assert first_false(results([own, lie, lie, 1000 * lie]), LAYOUT, GROUP) == 0, "by the tolerance of what is right"


def test_honest_seats_on_other_processors_are_not_the_false_ones() -> None:
    own = losses()
    near = own + np.float32(1e-5)
    assert first_false(results([own, near, near + np.float32(1e-5), 6.0 - own]), LAYOUT, GROUP) == 2


def test_among_lies_that_are_false_together_only_the_first_of_an_equal_part_is_found() -> None:
    own = losses()
    spread = own.std() * LOOSE.share
    steps = [own + np.float32(share * spread) for share in (0.0, 0.1, 0.6, 1.2)]
    assert loss_difference(steps[-1], own, GROUP) > 1.0
    assert first_false(results(steps), LAYOUT, GROUP) == 1


def test_losses_that_are_no_numbers_are_false_where_they_begin() -> None:
    own, none = losses(), np.full(GROUP, np.nan, np.float32)
    assert first_false(results([own, own, none, none]), LAYOUT, GROUP) == 1
    assert first_false(results([none, none, own, own]), LAYOUT, GROUP) == 1
    assert first_false(results([own, own, own, none]), LAYOUT, GROUP) == 2


MATRICES = ParameterLayout((TensorSpec("wide", (96, 384)), TensorSpec("narrow", (65, 96)), TensorSpec("vector", (96,))))


def rounded(numbers: NDArray[np.int64]) -> CodedEstimate:
    """A volunteer's sum, rounded by random words."""
    return encode_randomly(MATRICES, numbers, GENERATOR.integers(0, 2**32, MATRICES.size, dtype=np.uint32))


@pytest.mark.parametrize("way", [rounded, partial(encode_estimate, MATRICES)])
@pytest.mark.parametrize("signal", [0.0, 1.0])
@pytest.mark.parametrize("n_parts", [1, 2, 3, 8, 40])
def test_honest_sum_of_a_relay_is_true_although_its_parts_were_rounded_each(
    way: Callable[[NDArray[np.int64]], CodedEstimate], signal: float, n_parts: int
) -> None:
    tails = np.exp(0.5 * GENERATOR.standard_normal(MATRICES.size))
    common = signal * GENERATOR.standard_normal(MATRICES.size)
    parts = [
        np.rint(1e5 * tails * (GENERATOR.standard_normal(MATRICES.size) + common)).astype(np.int64)
        for _ in range(n_parts)
    ]
    total = np.sum([decode_estimate(MATRICES, way(part)).astype(np.int64) for part in parts], axis=0)
    relayed = encode_exactly(MATRICES, total)
    own = way(np.sum(parts, axis=0))
    assert relayed.is_exact
    assert sum_difference(relayed, own, MATRICES, FLOATS.summed) < FLOATS.summed.usual
    # A tenth of its length in any direction is not rounding.
    lie = decode_estimate(MATRICES, own).astype(np.int64)
    lie = lie + np.rint(0.1 * np.roll(lie, 1)).astype(np.int64)
    assert sum_difference(encode_exactly(MATRICES, lie), own, MATRICES, FLOATS.summed) > 1.0


def test_only_a_sum_of_sums_may_be_off_by_its_rounding() -> None:
    numbers = np.rint(1e5 * GENERATOR.standard_normal(MATRICES.size)).astype(np.int64)
    one, other = (decode_estimate(MATRICES, rounded(numbers)).astype(np.int64) for _ in range(2))
    own = rounded(one)  # shifted bytes once rounded stay as they are
    assert sum_difference(encode_exactly(MATRICES, other), own, MATRICES, FLOATS.summed) == 0.0
    assert sum_difference(encode_estimate(MATRICES, other), own, MATRICES, FLOATS.summed) > 0.5


@pytest.mark.parametrize(("apart", "at_most"), [(0.1, 0.4), (0.25, 1.0)])
def test_local_steps_may_lead_as_far_apart_as_honest_machines_are_and_no_further(apart: float, at_most: float) -> None:
    numbers = 1e5 * GENERATOR.standard_normal(MATRICES.size)
    own, claimed = (
        encode_estimate(MATRICES, np.rint(numbers * factor).astype(np.int64)) for factor in (1.0, 1 + apart)
    )
    assert 0.5 * at_most < sum_difference(claimed, own, MATRICES, LOCAL_STEPS) < at_most
    far = encode_estimate(MATRICES, np.rint(1.35 * numbers).astype(np.int64))
    assert sum_difference(far, own, MATRICES, LOCAL_STEPS) > 1.0


def moments_of(n_groups: int, n: int = 200) -> Int64Array:
    """Those of groups that made `n` observations of two numbers."""
    units = np.rint(GENERATOR.normal(0.3, 1.0, (n_groups, n, 2)) * UNIT).astype(np.int64)
    counts = np.full((n_groups, 1), n)
    return np.concatenate([counts, units.sum(axis=1), (units**2).sum(axis=1)], axis=1).reshape(-1)


def test_honest_moments_differ_by_nothing_that_counts() -> None:
    own = moments_of(3)
    assert moment_differences(own, own, 3).tolist() == [0.0] * 3
    assert (moment_differences(own + 5, own, 3) < 1.0).all()
    assert moment_differences(NO_MOMENTS, NO_MOMENTS, 2).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("entry", range(5))
@pytest.mark.parametrize("sign", [-1, 1])
def test_one_false_number_of_one_group_is_enough(entry: int, sign: int) -> None:
    own = moments_of(3)
    scale = (200, 200 * UNIT, 200 * UNIT, 200 * UNIT**2, 200 * UNIT**2)[entry]
    for share, is_false in ((0.5, False), (2.0, True)):
        claimed = own.copy()
        claimed[5 + entry] += int(sign * share * LOOSE.share * scale)
        found = moment_differences(claimed, own, 3) > 1.0
        assert found.tolist() == [False, is_false, False]


def test_moments_of_members_that_observed_nothing_must_be_nothing() -> None:
    nothing = np.zeros(5, dtype=np.int64)
    assert moment_differences(nothing, nothing, 1)[0] == 0.0
    assert moment_differences(moments_of(1), nothing, 1)[0] > 1.0


def test_a_claim_with_true_losses_and_false_moments_is_false() -> None:
    found, seen = losses(), moments_of(1)
    own = TrialResults(found, moments=seen)
    claimed = msgspec.structs.replace(claim(found), moments=seen)
    assert compare(claimed, lambda: own, LAYOUT)[0] is Finding.TRUE
    false = msgspec.structs.replace(claimed, moments=2 * seen)
    assert compare(false, lambda: own, LAYOUT)[0] is Finding.FALSE
    differing = iter([own, TrialResults(found, moments=2 * seen)])
    assert compare(false, lambda: next(differing), LAYOUT)[0] is Finding.UNDECIDABLE
