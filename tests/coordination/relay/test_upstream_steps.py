import numpy as np
import pytest

from fedlearn.coordination.leases.lease import Lease
from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.relay.upstream_steps import GREATEST, SHARE_OF_TIME, UpstreamSteps
from fedlearn.coordination.steps.closing import StepPace
from fedlearn.coordination.work.slices import SLICE_S
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.sums.estimate import NO_ESTIMATE, CodedEstimate, decode_estimate, encode_exactly
from fedlearn.es.sums.exchange import SUM_SLICE_S
from fedlearn.wire.messages import Assignment, Result
from tests.coordination.leases.test_moments import OBSERVING, moments
from tests.storage.journals import update_of

GROUP, FIRST, QUOTA = 4, 100, 32
LAYOUT = ParameterLayout((TensorSpec("vector", (3,)),))
REPLAYED = Perturbation(0.1, 1)
SUMMED = Perturbation(0.02, 1, "activations", "closed-form", 0.05, 0.8)
DIGEST = b"digested"


def assignment(perturbation: Perturbation = REPLAYED, step: int = 7) -> Assignment:
    return Assignment(step, b"", perturbation, GROUP, FIRST, QUOTA, 10.0)


def opened(steps: UpstreamSteps, given: Assignment, now: float = 0.0) -> OpenStep:
    steps.digest = DIGEST
    steps.assign(given, now)
    step = steps.open(given.step, None, [], pace=StepPace(0.0), first_member=0, now=now)
    assert step is not None
    return step


def take(
    lease: Lease, n_members: int, estimate: CodedEstimate | None = None, variance_left: float | None = None
) -> None:
    first = lease.first_member + lease.n_received
    losses = np.arange(first, first + n_members, dtype=np.float32)
    coded = estimate or CodedEstimate(np.zeros(0, np.int8), np.zeros(0, np.uint8))
    assert lease.take(first, losses, coded, GROUP, variance_left=variance_left) == ""


def spans(results: list[Result]) -> list[tuple[int, int]]:
    for result in results:
        assert result.losses.tolist() == list(range(result.first_member, result.first_member + result.losses.size))
    return [(result.first_member, result.losses.size) for result in results]


def test_lease_of_another_step_opens_none() -> None:
    steps = UpstreamSteps(LAYOUT)
    assert steps.open(7, None, [], pace=StepPace(0.0), first_member=0, now=0.0) is None
    steps.assign(assignment(), 0.0)
    assert steps.open(6, None, [], pace=StepPace(0.0), first_member=0, now=0.0) is None
    steps.revoke()
    assert steps.open(7, None, [], pace=StepPace(0.0), first_member=0, now=0.0) is None


def test_those_below_have_a_little_less_time() -> None:
    steps = UpstreamSteps(LAYOUT)
    steps.assign(assignment(), 5.0)
    step = steps.open(7, None, [], pace=StepPace(0.0), first_member=0, now=6.0)
    assert step is not None
    assert step.deadline == 5.0 + SHARE_OF_TIME * 10.0
    assert step.assignment(step.lease(8)).time_left_s == step.deadline - 6.0


def test_those_below_send_bytes_whatever_the_server_above_is_sent() -> None:
    step = opened(UpstreamSteps(LAYOUT), assignment(Perturbation(0.0, 0, "nothing", sum_bits=4)))
    assert step.assignment(step.lease(8)).perturbation == Perturbation(0.0, 0, "nothing", sum_bits=8)


def test_what_follows_without_gaps_goes_up_together() -> None:
    steps = UpstreamSteps(LAYOUT)
    step = opened(steps, assignment())
    one, two, three = (step.lease(8) for _ in range(3))
    for lease, count in ((one, 4), (two, 8), (three, 8)):
        take(lease, count)
    assert spans(steps.hand_up(SLICE_S)) == [(100, 4)]
    take(one, 4)
    (result,) = steps.hand_up(2 * SLICE_S)
    assert spans([result]) == [(104, 20)]
    assert (result.step, result.digest, result.busy_s) == (7, DIGEST, 2 * SLICE_S)
    assert steps.next_member == 124
    assert steps.hand_up(99.0) == []


def test_little_waits_for_more_unless_all_is_there_or_time_is_up() -> None:
    steps = UpstreamSteps(LAYOUT)
    step = opened(steps, assignment())
    lease = step.lease(8)
    take(lease, 4)
    assert steps.hand_up(SLICE_S / 2) == []
    take(lease, 4)
    assert spans(steps.hand_up(SLICE_S / 2)) == [(100, 8)]
    take(step.lease(8), 4)
    step.deadline = SLICE_S / 2
    assert spans(steps.hand_up(SLICE_S / 2)) == [(108, 4)]


def test_sums_wait_longer_than_losses() -> None:
    steps = UpstreamSteps(LAYOUT)
    lease = opened(steps, assignment(SUMMED)).lease(8)
    take(lease, 4, encode_exactly(LAYOUT, np.array([1, 2, 3])))
    assert steps.hand_up(SUM_SLICE_S - 0.01) == []
    assert spans(steps.hand_up(SUM_SLICE_S)) == [(100, 4)]


def test_what_waits_for_a_verdict_and_what_is_behind_it_stays() -> None:
    steps = UpstreamSteps(LAYOUT)
    step = opened(steps, assignment())
    held, other = step.lease(8, is_held=True), step.lease(8)
    take(held, 8)
    take(other, 8)
    assert steps.hand_up(1.0) == []
    held.release()
    assert spans(steps.hand_up(2.0)) == [(100, 16)]


def test_what_was_leased_beyond_the_end_never_goes_up() -> None:
    steps = UpstreamSteps(LAYOUT)
    step = opened(steps, assignment())
    take(step.lease(QUOTA), QUOTA)
    take(step.lease(GROUP, gates=False), GROUP)
    assert spans(steps.hand_up(1.0)) == [(100, QUOTA)]
    assert steps.hand_up(2.0) == []


def test_range_that_was_leased_again_goes_up_in_its_place() -> None:
    steps = UpstreamSteps(LAYOUT)
    step = opened(steps, assignment())
    one, two = step.lease(16), step.lease(16)
    take(one, 4)
    take(two, 16)
    one.end()
    again = step.lease_again(104, 12, Reputation(""), is_held=False, now=1.0)
    take(again, 12)
    assert spans(steps.hand_up(1.0)) == [(100, 32)]


@pytest.mark.parametrize("sums", [(120 << 20, -5), (3, 4), (0, 0)])
def test_rounded_sums_go_up_as_the_same_integers(sums: tuple[int, int]) -> None:
    steps = UpstreamSteps(LAYOUT)
    step = opened(steps, assignment(SUMMED))
    for number in sums:
        take(step.lease(16), 16, encode_exactly(LAYOUT, np.full(3, number)))
    (result,) = steps.hand_up(1.0)
    assert decode_estimate(LAYOUT, result.estimate).tolist() == [sum(sums)] * 3


def test_sums_that_32_bits_do_not_hold_together_go_up_one_by_one() -> None:
    steps = UpstreamSteps(LAYOUT)
    step = opened(steps, assignment(SUMMED))
    for number in (GREATEST, GREATEST):
        take(step.lease(16), 16, encode_exactly(LAYOUT, np.full(3, number)))
    results = steps.hand_up(1.0)
    assert spans(results) == [(100, 16), (116, 16)]
    assert [decode_estimate(LAYOUT, result.estimate)[0] for result in results] == [GREATEST, GREATEST]


def test_lines_below_count_as_time_on_the_line() -> None:
    steps = UpstreamSteps(LAYOUT)
    take(opened(steps, assignment(), 1.0).lease(8), 8)
    (result,) = steps.hand_up(3.0, exchange_s=0.5)
    assert result.busy_s == 1.5


def test_what_goes_up_says_the_median_of_the_variance_left_below() -> None:
    steps = UpstreamSteps(LAYOUT)
    step = opened(steps, assignment())
    one, two, three = step.lease(8), step.lease(16), step.lease(8)
    take(one, 8, variance_left=0.5)
    (first,) = steps.hand_up(SLICE_S)
    take(two, 16, variance_left=0.25)
    take(three, 8, variance_left=1e6)
    (second,) = steps.hand_up(2 * SLICE_S)
    assert (first.variance_left, second.variance_left) == (0.5, 0.25)
    assert steps.closed(update_of(7), 3.0).report.variance_left == 0.25


def test_nothing_is_said_of_a_variance_that_nobody_below_says() -> None:
    steps = UpstreamSteps(LAYOUT)
    take(opened(steps, assignment()).lease(8), 8)
    (result,) = steps.hand_up(SLICE_S)
    assert result.variance_left is None
    assert steps.closed(update_of(7), 3.0).report.variance_left is None


def test_a_result_says_how_many_machines_work_below() -> None:
    steps = UpstreamSteps(LAYOUT)
    step = opened(steps, assignment())
    take(step.lease(8), 8)
    (result,) = steps.hand_up(SLICE_S, n_machines=3)
    assert result.n_machines == 3


def test_moments_go_up_in_the_order_of_their_groups() -> None:
    steps = UpstreamSteps(OBSERVING)
    step = opened(steps, assignment())
    one, two = step.lease(8), step.lease(8)
    for lease, n_groups, first in ((two, 2, 3), (one, 1, 1), (one, 1, 2)):
        losses = np.zeros(n_groups * GROUP, dtype=np.float32)
        assert lease.take(lease.end_member, losses, NO_ESTIMATE, GROUP, moments=moments(first, n_groups)) == ""
    (result,) = steps.hand_up(SLICE_S)
    assert result.moments.tolist() == moments(1, 4).tolist()
