import numpy as np
import pytest

from fedlearn.coordination.leases.lease import Float32Array, Lease
from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.steps.variance import VarianceLeft
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.optimizers import Adam
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.shaping import MAX_LOSS, Shaping
from fedlearn.es.strategy import Population
from fedlearn.es.sums.clipping import Clipping
from fedlearn.es.sums.estimate import (
    NO_ESTIMATE,
    CodedEstimate,
    decode_estimate,
    encode_estimate,
    encode_exactly,
    encode_packed,
    random_bytes,
)

GROUP = 4


LAYOUT = ParameterLayout((TensorSpec("vector", (3,)),))


def numbered(first: int, count: int) -> Float32Array:
    return np.arange(first, first + count, dtype=np.float32)


def population(perturbation: Perturbation) -> Population:
    return Population(
        step=7,
        perturbation=perturbation,
        group_size=GROUP,
        limit=64,
        optimizer=Adam(0.01),
        elapsed_s=0.0,
        shaping_scale=0.0,
    )


@pytest.fixture
def step() -> OpenStep:
    return OpenStep(population(Perturbation(0.1, 1)), opened_at=1.0, deadline=2.0, first_member=100, layout=LAYOUT)


def test_leases_follow_one_another_without_overlap(step: OpenStep) -> None:
    leases = [step.lease(quota) for quota in (8, 4, 12)]
    assert [(lease.first_member, lease.quota) for lease in leases] == [(100, 8), (108, 4), (112, 12)]
    assert step.next_member == 124


def test_results_in_pieces_complete_a_lease() -> None:
    lease = Lease(8, 12)
    assert lease.take(8, numbered(8, 4), NO_ESTIMATE, GROUP) == ""
    assert not lease.is_done
    assert lease.take(12, numbered(12, 8), NO_ESTIMATE, GROUP) == ""
    assert lease.is_done


@pytest.mark.parametrize(
    ("first_member", "losses", "complaint"),
    [
        (0, numbered(0, 4), "expected 12, got 0"),  # somebody else's
        (8, numbered(8, 4), "expected 12, got 8"),  # again
        (16, numbered(16, 4), "expected 12, got 16"),  # one left out
        (12, numbered(12, 12), "at most 8 members, got shape [12]"),
        (12, numbered(12, 6), "whole groups of 4"),
        (12, numbered(12, 0), "whole groups of 4"),
    ],
)
def test_result_that_is_not_what_comes_next_is_named_and_not_counted(
    first_member: int, losses: Float32Array, complaint: str
) -> None:
    lease = Lease(8, 12)
    lease.take(8, numbered(8, 4), NO_ESTIMATE, GROUP)
    assert complaint in lease.take(first_member, losses, NO_ESTIMATE, GROUP)
    assert lease.n_received == 4


def test_losses_beyond_the_bound_count_as_infinite() -> None:
    """Otherwise their spread makes gradients beyond float32, and weights that are not numbers for ever after."""
    lease = Lease(8, 8)
    given = np.array([1, -1, MAX_LOSS, -MAX_LOSS, 1.1 * MAX_LOSS, -1.1 * MAX_LOSS, np.nan, -np.inf], dtype=np.float32)
    assert lease.take(8, given, NO_ESTIMATE, GROUP) == ""
    bounded = np.array([1, -1, MAX_LOSS, -MAX_LOSS, np.inf, np.inf, np.inf, np.inf], dtype=np.float32)
    np.testing.assert_array_equal(lease.losses[0], bounded)
    assert lease.losses[0].dtype == np.float32
    assert lease.n_finite == 4


def test_lease_of_someone_who_left_keeps_its_results(step: OpenStep) -> None:
    lease = step.lease(8)
    lease.take(100, numbered(0, 4), NO_ESTIMATE, GROUP)
    lease.end()
    assert step.is_complete
    assert step.n_members == 4


def test_lease_of_someone_not_trusted_loses_its_results(step: OpenStep) -> None:
    lease, other = step.lease(8), step.lease(4)
    lease.take(100, numbered(0, 8), NO_ESTIMATE, GROUP)
    lease.void()
    assert (step.n_members, step.is_complete) == (0, False)
    other.take(108, numbered(0, 4), NO_ESTIMATE, GROUP)
    assert (step.n_members, step.is_complete) == (4, True)
    assert step.n_contributors == 1
    assert step.collect()[0] == ((108, 4),)


def test_step_is_complete_once_no_lease_is_unfinished(step: OpenStep) -> None:
    first, second, third = (step.lease(8) for _ in range(3))
    step.lease(0)
    assert (step.n_members, step.is_complete) == (0, False)
    first.take(100, numbered(0, 8), NO_ESTIMATE, GROUP)
    first.end()  # it left after all was done
    second.take(108, numbered(0, 4), NO_ESTIMATE, GROUP)
    second.end()
    assert (step.n_members, step.is_complete) == (12, False)
    third.take(116, numbered(0, 8), NO_ESTIMATE, GROUP)
    assert (step.n_members, step.is_complete) == (20, True)
    first.void()
    second.void()
    assert (step.n_members, step.is_complete) == (8, True)


@pytest.mark.parametrize(("half_s", "deadline"), [(0.0, 0.1), (0.04, 0.1), (1.0, 2.0), (6.0, 10.0)])
def test_deadline_comes_forward_once_half_the_population_is_in(half_s: float, deadline: float) -> None:
    step = OpenStep(population(Perturbation(0.1, 1)), opened_at=1.0, deadline=11.0, first_member=100, layout=LAYOUT)
    lease, _ = step.lease(12), step.lease(12)
    lease.take(100, numbered(0, 8), NO_ESTIMATE, GROUP)
    step.took(1.0 + half_s)
    assert step.deadline == 11.0
    lease.take(108, numbered(0, 4), NO_ESTIMATE, GROUP)
    step.took(1.0 + half_s)
    assert step.deadline == pytest.approx(1.0 + deadline)


def test_deadline_stays_where_one_alone_has_all_the_work() -> None:
    step = OpenStep(population(Perturbation(0.1, 1)), opened_at=1.0, deadline=11.0, first_member=100, layout=LAYOUT)
    lease = step.lease(24)
    lease.take(100, numbered(0, 16), NO_ESTIMATE, GROUP)
    step.took(2.0)
    assert step.deadline == 11.0


def test_collected_spans_are_ascending_joined_where_they_touch_and_in_order_of_their_losses(step: OpenStep) -> None:
    leases = [step.lease(quota) for quota in (8, 4, 8, 4, 4)]
    for index, count in ((4, 4), (2, 4), (1, 4), (0, 8)):  # the fourth sent nothing
        leases[index].take(leases[index].first_member, numbered(leases[index].first_member, count), NO_ESTIMATE, GROUP)
    spans, losses = step.collect()
    assert spans == ((100, 16), (124, 4))
    assert losses.tolist() == [*range(100, 116), *range(124, 128)]
    assert losses.dtype == np.float32
    assert step.n_contributors == 4


def summed_step() -> OpenStep:
    summed = population(Perturbation(0.1, 1, "activations"))
    return OpenStep(summed, opened_at=1.0, deadline=2.0, first_member=0, layout=LAYOUT)


def estimate(*numbers: int) -> CodedEstimate:
    return encode_estimate(LAYOUT, np.array(numbers, dtype=np.int64))


def test_estimates_of_all_leases_add_up_but_for_those_not_trusted() -> None:
    step = summed_step()
    leases = [step.lease(8) for _ in range(3)]
    assert leases[0].take(0, numbered(0, 4), estimate(1, 2, 3), GROUP) == ""
    assert leases[0].take(4, numbered(4, 4), estimate(10, 20, 30), GROUP) == ""
    assert leases[1].take(8, numbered(8, 8), estimate(100, 0, -100), GROUP) == ""
    assert leases[2].take(16, numbered(16, 8), estimate(9, 9, 9), GROUP) == ""
    leases[2].void()
    np.testing.assert_array_equal(decode_estimate(LAYOUT, step.total_estimate(Clipping())), [111, 22, -67])


def test_the_total_of_packed_sums_is_packed() -> None:
    layout = ParameterLayout((TensorSpec("matrix", (2, 3)),))
    coarse = population(Perturbation(0.0, 0, "nothing", sum_bits=4))
    step = OpenStep(coarse, opened_at=1.0, deadline=2.0, first_member=0, layout=layout)
    sums = np.array([700, -300, 5, 0, 1, 90])
    for first in (0, 4):
        coded = encode_packed(layout, sums, random_bytes(9, first, 6))
        assert step.lease(4).take(first, numbered(first, 4), coded, GROUP) == ""
    total = step.total_estimate(Clipping())
    one, other = (encode_packed(layout, sums, random_bytes(9, first, 6)) for first in (0, 4))
    parts = decode_estimate(layout, one) + decode_estimate(layout, other)
    expected = encode_packed(layout, parts, random_bytes(0, step.population.step, 6))
    assert total.is_packed
    assert (total.numbers.tobytes(), total.shifts.tobytes()) == (expected.numbers.tobytes(), expected.shifts.tobytes())


def test_sums_can_be_asked_for_in_bytes() -> None:
    coarse = population(Perturbation(0.0, 0, "nothing", sum_bits=4))
    step = OpenStep(coarse, opened_at=1.0, deadline=2.0, first_member=0, layout=LAYOUT)
    asked = [step.trials(0, GROUP, in_bytes=in_bytes).perturbation.sum_bits for in_bytes in (False, True)]
    assert asked == [4, 8]


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_estimate_without_a_group_of_finite_losses_does_not_count(broken: float) -> None:
    step = summed_step()
    lease = step.lease(12)
    losses = numbered(0, 4)
    losses[2] = broken
    assert lease.take(0, losses, estimate(9, 9, 9), GROUP) == ""
    np.testing.assert_array_equal(decode_estimate(LAYOUT, step.total_estimate(Clipping())), [0, 0, 0])
    assert lease.take(4, np.concatenate([losses, numbered(4, 4)]), estimate(1, 2, 3), GROUP) == ""
    np.testing.assert_array_equal(decode_estimate(LAYOUT, step.total_estimate(Clipping())), [1, 2, 3])


def test_sum_beyond_32_bits_is_cut() -> None:
    step = summed_step()
    most = 127 << 24
    for first in (0, 4, 8):
        step.lease(4).take(first, numbered(first, 4), estimate(most, -most, 1), GROUP)
    np.testing.assert_array_equal(decode_estimate(LAYOUT, step.total_estimate(Clipping())), [most, -most, 3])


def test_estimate_of_another_model_is_named_and_not_counted(step: OpenStep) -> None:
    lease = summed_step().lease(8)
    other = CodedEstimate(np.zeros(2, dtype=np.int8), np.zeros(3, dtype=np.uint8))
    assert "expected 3 bytes by the codes, got 2" in lease.take(0, numbered(0, 4), other, GROUP)
    assert "expected one a row, 3, got 0" in lease.take(0, numbered(0, 4), NO_ESTIMATE, GROUP)
    assert lease.n_received == 0
    assert step.total_estimate(Clipping()) is NO_ESTIMATE


def test_estimate_that_nobody_asked_for_is_named_and_not_counted(step: OpenStep) -> None:
    lease = step.lease(8)
    assert "expected none" in lease.take(100, numbered(0, 4), estimate(1, 2, 3), GROUP)
    assert lease.n_received == 0


EXACT = Shaping("sign", 1.0)


def exact_step() -> OpenStep:
    asked = population(Perturbation(0.1, 1))
    return OpenStep(asked, opened_at=1.0, deadline=2.0, first_member=0, layout=LAYOUT, shaping=EXACT)


def exactly(*numbers: int) -> CodedEstimate:
    return encode_exactly(LAYOUT, np.array(numbers, dtype=np.int64))


def test_exact_sums_add_up_to_the_last_unit_whatever_others_weigh() -> None:
    step, clipping = exact_step(), Clipping()
    leases = [step.lease(4) for _ in range(4)]
    for lease, numbers in zip(leases, [(1, 2, 3), (-200, 300, 400), (1, 0, 0), (0, 1, 0)], strict=True):
        assert lease.take(lease.first_member, numbered(0, 4), exactly(*numbers), GROUP) == ""
    total = step.total_estimate(clipping)
    np.testing.assert_array_equal(decode_estimate(LAYOUT, total), [-198, 303, 403])
    assert (total.shifts >= 128).all()
    assert clipping.n_clipped == 0


def test_exact_sum_beyond_what_its_losses_allow_is_refused() -> None:
    lease = exact_step().lease(8)
    assert "expected numbers up to 508 of 4 members, got 509" in lease.take(
        0, numbered(0, 4), exactly(0, 509, 0), GROUP
    )
    assert "a length up to 0 by the losses" in lease.take(0, np.ones(4, np.float32), exactly(0, 1, 0), GROUP)
    assert lease.n_received == 0
    assert "expected one a row, 3, got 0" in lease.take(0, numbered(0, 4), NO_ESTIMATE, GROUP)


def test_exact_step_without_anything_to_sum_has_a_sum_of_zeros() -> None:
    step = exact_step()
    losses = np.full(4, np.inf, dtype=np.float32)
    assert step.lease(4).take(0, losses, exactly(0, 0, 0), GROUP) == ""
    assert step.total_estimate(Clipping()).shifts.tolist() == [128] * 3


def test_copies_are_waited_for_and_change_nothing_else(step: OpenStep) -> None:
    lease = step.lease(8)
    copy = step.copy(104, 4, Reputation("Bob"))
    lease.take(100, numbered(100, 8), NO_ESTIMATE, GROUP)
    assert (step.n_members, step.n_contributors, step.is_complete) == (8, 1, False)
    copy.take(104, numbered(104, 4), NO_ESTIMATE, GROUP)
    assert (step.n_members, step.n_contributors, step.is_complete) == (8, 2, True)
    assert step.collect()[0] == ((100, 8),)
    copy.void()
    assert (step.n_members, step.is_complete) == (8, True)
    assert step.next_member == 108


def test_copy_counts_where_nothing_else_does_and_then_is_none_any_more(step: OpenStep) -> None:
    lease = step.lease(8)
    copies = [step.copy(100, 8, Reputation("Bob")), step.copy(104, 4, Reputation("Cyd"))]
    step.count_a_copy()
    assert (step.n_members, step.leases, step.copies) == (0, [lease], copies)
    copies[0].take(100, numbered(100, 4), NO_ESTIMATE, GROUP)
    step.count_a_copy()
    assert step.collect()[0] == ((100, 4),)
    assert (step.n_members, step.n_contributors, step.copies) == (4, 1, [])


def test_variance_left_is_the_median_of_what_counted_results_say() -> None:
    step = OpenStep(population(Perturbation(0.1, 1)), opened_at=1.0, deadline=2.0, first_member=0, layout=LAYOUT)
    first, second, held, false = step.lease(12), step.lease(4), step.lease(16, is_held=True), step.lease(16)
    copy = step.copy(0, 12, Reputation("Bob"))
    for lease, at, count, said in (
        (first, 0, 4, 0.25),
        (first, 4, 8, 0.5),
        (second, 12, 4, 0.125),
        (held, 16, 16, 0.75),
        (false, 32, 16, 3.0),
        (copy, 0, 12, 9.0),
    ):
        assert lease.take(at, numbered(at, count), NO_ESTIMATE, GROUP, variance_left=said) == ""
    false.void()
    assert step.variance_left == 0.25
    held.release()
    assert step.variance_left == 0.5
    first.hand_over()
    assert step.variance_left == 0.5


def test_refused_result_says_nothing_of_the_variance(step: OpenStep) -> None:
    lease = step.lease(8)
    assert lease.take(104, numbered(104, 4), NO_ESTIMATE, GROUP, variance_left=0.5) != ""
    assert lease.take(100, numbered(100, 4), NO_ESTIMATE, GROUP) == ""
    assert lease.variances == [VarianceLeft(np.inf, 4)]
