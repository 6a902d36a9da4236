"""A seat's part of its crew's work, in isolation."""

import msgspec
import numpy as np
import pytest

from fedlearn.coordination.work.pipeline import Pipeline
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import TrialResults
from fedlearn.tasks.parts.computation import Pass, Passed
from fedlearn.wire.messages import Activations, Assignment, Result, Seat, Taken

GROUP = 8
BATCH = 3
WINDOW = 4
FIRST = 64
DIGEST = bytes(range(8))
PERTURBATION = Perturbation(0.1, 1)


def assignment(*, step: int = 5, quota: int = 4 * GROUP) -> Assignment:
    return Assignment(step, b"block", PERTURBATION, GROUP, FIRST, quota, 10.0)


def pipeline(place: int, *, seats: int = 3) -> Pipeline:
    cuts = tuple(range(1, seats))
    made = Pipeline(Seat(1, cuts, 1, place, "float32", BATCH, WINDOW, 4, 0))
    made.assign(assignment(), now=100.0)
    return made


def passes(made: Pipeline, *, step: int = 5, now: float = 100.0) -> list[Pass]:
    """All that it wants computed by now."""
    orders = []
    while (order := made.next(step, now)) is not None:
        orders.append(order)
    return orders


def spans(orders: list[Pass]) -> list[tuple[int, int]]:
    return [(order.trials.first_member, order.trials.n_members) for order in orders]


def activations(first: int, count: int, *, step: int = 5, payload: bytes = b"1234") -> Activations:
    return Activations(step, first, count, DIGEST, payload)


def test_the_first_seat_cuts_groups_into_batches_until_the_window_is_full() -> None:
    first = pipeline(0)
    # No batch crosses groups.
    assert spans(passes(first)) == [(64, 3), (67, 3), (70, 2), (72, 3)]


def test_members_that_are_through_make_room_for_others() -> None:
    first = pipeline(0)
    passes(first)
    first.taken(Taken(5, 72))
    assert spans(passes(first)) == [(75, 3), (78, 2), (80, 3)]
    first.taken(Taken(5, 64))  # an earlier word that came late
    first.taken(Taken(4, 96))  # of another step
    assert passes(first) == []


def test_the_first_seat_ends_with_its_lease() -> None:
    first = pipeline(0)
    first.taken(Taken(5, FIRST + 4 * GROUP))
    assert sum(count for _, count in spans(passes(first))) == 4 * GROUP


def test_nothing_begins_before_the_weights_are_there() -> None:
    assert passes(pipeline(0), step=4) == []


def test_the_group_that_is_begun_and_the_first_one_are_ended_after_the_deadline() -> None:
    first = pipeline(0)
    assert sum(count for _, count in spans(passes(first, now=110.0))) == GROUP
    begun = pipeline(0)
    in_time = [begun.next(5, 109.9) for _ in range(4)]
    assert in_time[-1] is not None
    assert in_time[-1].trials.first_member == FIRST + GROUP
    assert passes(begun, now=110.0) == [], "no further than the window"
    begun.taken(Taken(5, FIRST + GROUP))
    assert spans(passes(begun, now=110.0)) == [(FIRST + GROUP + 3, 3), (FIRST + GROUP + 6, 2)]


def test_trials_are_those_of_the_lease() -> None:
    order = pipeline(0).next(5, 100.0)
    assert order is not None
    assert (order.block, order.payload) == (b"block", b"")
    trials = order.trials
    assert (trials.step, trials.perturbation, trials.group_size, trials.shaping) == (5, PERTURBATION, GROUP, None)


@pytest.mark.parametrize("place", [1, 2])
def test_the_others_take_what_comes_in_order(place: int) -> None:
    made = pipeline(place)
    assert passes(made) == []
    made.received(activations(64, 3, payload=b"a"))
    made.received(activations(67, 3, payload=b"bc"))
    assert made.bytes_waiting == 3
    assert made.next(4, 100.0) is None
    assert [(order.trials.first_member, order.payload) for order in passes(made)] == [(64, b"a"), (67, b"bc")]
    assert made.bytes_waiting == 0


def test_what_is_of_no_lease_is_not_kept() -> None:
    stem, first = pipeline(1), pipeline(0)
    stem.received(activations(64, 3, step=4))
    first.received(activations(64, 3))
    assert passes(stem) == []
    assert (stem.bytes_waiting, first.bytes_waiting) == (0, 0)
    stem.clear()
    stem.received(activations(64, 3))
    assert stem.bytes_waiting == 0


def test_the_end_of_a_step_forgets_what_waits() -> None:
    stem = pipeline(1)
    stem.received(activations(64, 3))
    stem.assign(assignment(step=6), now=101.0)
    assert stem.bytes_waiting == 0
    assert passes(stem, step=6) == []


def test_a_stem_hands_on_what_it_made_with_its_own_digest() -> None:
    stem = pipeline(1)
    stem.received(activations(64, 3))
    (order,) = passes(stem)
    (said,) = stem.passed(order, Passed(b"made"), DIGEST, now=101.0)
    assert said == Activations(5, 64, 3, DIGEST, b"made")


def test_the_last_seat_reports_whole_groups_and_how_far_it_is_with_others() -> None:
    last = pipeline(2)
    said: list[object] = []
    for first, count in [(64, 3), (67, 3), (70, 2), (72, 3)]:
        last.received(activations(first, count))
        (order,) = passes(last)
        losses = np.arange(first, first + count, dtype=np.float32)
        said += last.passed(order, Passed(results=TrialResults(losses)), DIGEST, now=102.5)
    begun, further, result, next_begun = said
    assert (begun, further, next_begun) == (Taken(5, 67), Taken(5, 70), Taken(5, 75))
    assert isinstance(result, Result)
    assert (result.step, result.first_member, result.digest, result.busy_s) == (5, 64, DIGEST, 2.5)
    assert result.losses.tolist() == list(range(64, 72))
    assert result.estimate.n_bytes == 0


def test_what_was_made_of_a_step_that_is_over_is_not_said() -> None:
    stem = pipeline(1)
    stem.received(activations(64, 3))
    (order,) = passes(stem)
    stem.assign(assignment(step=6), now=101.0)
    assert stem.passed(order, Passed(b"made"), DIGEST, now=101.0) == []
    stem.clear()
    assert stem.passed(order, Passed(b"made"), DIGEST, now=101.0) == []


def test_losses_of_a_lease_that_was_given_up_are_not_mixed_with_the_next() -> None:
    last = pipeline(2)
    last.received(activations(64, 3))
    (order,) = passes(last)
    last.passed(order, Passed(results=TrialResults(np.zeros(3, np.float32))), DIGEST, now=101.0)
    last.assign(assignment(), now=102.0)
    last.received(activations(64, 8))
    (order,) = passes(last)
    (result,) = last.passed(
        order, Passed(results=TrialResults(np.ones(8, np.float32), variance_left=0.5)), DIGEST, now=103.0
    )
    assert isinstance(result, Result)
    assert result.losses.tolist() == [1.0] * 8
    assert result.variance_left is None


@pytest.mark.parametrize("later", [FIRST + GROUP, FIRST - GROUP])
def test_what_was_being_made_of_a_lease_that_was_given_up_is_not_said_of_the_next(later: int) -> None:
    last = pipeline(2)
    last.received(activations(FIRST, 3))
    (late,) = passes(last)
    last.assign(msgspec.structs.replace(assignment(quota=GROUP), first_member=later), now=101.0)
    assert last.passed(late, Passed(results=TrialResults(np.zeros(3, np.float32))), DIGEST, now=102.0) == []
    last.received(activations(later, GROUP))
    (whole,) = passes(last)
    (said,) = last.passed(whole, Passed(results=TrialResults(np.ones(GROUP, np.float32))), DIGEST, now=103.0)
    assert isinstance(said, Result)
    assert (said.first_member, said.losses.size) == (later, GROUP)


def test_a_crew_of_one_begins_and_reports() -> None:
    alone = pipeline(0, seats=1)
    said = []
    for order in passes(alone)[:3]:
        losses = np.zeros(order.trials.n_members, np.float32)
        said += alone.passed(order, Passed(results=TrialResults(losses)), DIGEST, now=101.0)
    result = said[-1]
    assert isinstance(result, Result)
    assert (result.first_member, result.losses.size) == (64, GROUP)
