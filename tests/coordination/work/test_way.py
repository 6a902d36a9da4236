"""Members without noise, which pass a crew's seats forward and come back."""

import numpy as np
import pytest

from fedlearn.coordination.work.pipeline import Pipeline
from fedlearn.coordination.work.way import leg_of, way_of
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.sums.estimate import CodedEstimate
from fedlearn.es.trials import TrialResults
from fedlearn.tasks.parts.computation import Pass, Passed
from fedlearn.wire.messages import Activations, Assignment, Message, Result, Seat, Taken

FIRST, QUOTA, BATCH, WINDOW = 64, 8, 3, 2
DIGEST = bytes(range(8))
LEASE = Assignment(5, b"block", Perturbation(1.0, 1, space="nothing"), 1, FIRST, QUOTA, 10.0)
SUM = CodedEstimate(np.ones(1, dtype=np.int8), np.zeros(1, dtype=np.uint8))
SPANS = [(64, 3), (67, 3), (70, 2)]


def pipeline(place: int, *, seats: int = 3) -> Pipeline:
    made = Pipeline(Seat(1, tuple(range(1, seats)), 1, place, "float32", BATCH, WINDOW, 4, 0, 4))
    made.assign(LEASE, now=100.0)
    return made


def activations(first: int, count: int, *, backward: bool = False) -> Activations:
    return Activations(5, first, count, DIGEST, bytes(4 * count), backward)


def ordered(made: Pipeline) -> Pass:
    order = made.next(5, 200.0)
    assert order is not None, "even after the deadline"
    return order


def answer(made: Pipeline, order: Pass, *, n_losses: int = 0) -> list[Message]:
    is_end = order.trials.first_member + order.trials.n_members == FIRST + QUOTA
    losses = np.full(n_losses, 2.0, dtype=np.float32)
    results = TrialResults(losses, SUM) if is_end else TrialResults(losses)
    return made.passed(order, Passed(bytes(4), results), DIGEST, now=101.0)


def test_the_way_of_a_gradient_leads_there_and_back() -> None:
    way = way_of(3, comes_back=True)
    assert (way, way_of(3, comes_back=False), way_of(1, comes_back=True)) == ((0, 1, 2, 1, 0), (0, 1, 2), (0,))
    assert [leg_of(way, stage, activations(64, 3)) for stage in (0, 1)] == [0, 1]
    assert [leg_of(way, stage, activations(64, 3, backward=True)) for stage in (2, 1)] == [2, 3]
    assert [leg_of(way, stage, Taken(5, 65)) for stage in (0, 1, 2)] == [4, 3, 2]


def test_the_first_seat_is_at_most_a_window_ahead_of_what_came_back() -> None:
    first = pipeline(0)
    for order in (ordered(first), ordered(first)):
        (said,) = first.passed(order, Passed(b"made"), DIGEST, 101.0)
        assert said == Activations(5, order.trials.first_member, 3, DIGEST, b"made")
    assert first.next(5, 101.0) is None
    first.received(activations(64, 3, backward=True))
    back = ordered(first)
    assert (back.trials.first_member, back.cotangents, back.payload) == (64, bytes(12), b"")
    assert back.lease is not None
    assert (back.lease.first_member, back.lease.n_members) == (FIRST, QUOTA)
    assert first.passed(back, Passed(), DIGEST, 101.0) == [Taken(5, 67)]
    third = ordered(first)
    assert (third.trials.first_member, third.trials.n_members) == (70, 2)


def test_a_stem_keeps_what_it_was_sent_until_members_come_back_and_says_its_sum_at_the_end() -> None:
    stem = pipeline(1)
    for span in SPANS:
        stem.received(activations(*span))
        stem.passed(ordered(stem), Passed(b"on"), DIGEST, 101.0)
    assert stem.bytes_waiting == 4 * QUOTA
    said: list[Message] = []
    for first, count in SPANS:
        stem.received(activations(first, count, backward=True))
        order = ordered(stem)
        assert (order.payload, order.cotangents) == (bytes(4 * count), bytes(4 * count))
        said += answer(stem, order)
    assert stem.bytes_waiting == 0
    *backs, result = said
    assert backs == [Activations(5, first, count, DIGEST, bytes(4), True) for first, count in SPANS]
    assert isinstance(result, Result)
    assert (result.first_member, result.losses.size, result.estimate) == (FIRST, 0, SUM)


def test_the_last_seat_turns_and_says_losses_with_its_sum_at_the_end() -> None:
    last = pipeline(2)
    said: list[Message] = []
    for first, count in SPANS:
        last.received(activations(first, count))
        order = ordered(last)
        assert order.cotangents is None
        said += answer(last, order, n_losses=count)
    *backs, result = said
    assert [back.backward for back in backs if isinstance(back, Activations)] == [True] * 3
    assert isinstance(result, Result)
    assert (result.first_member, result.losses.tolist(), result.estimate) == (FIRST, [2.0] * QUOTA, SUM)


def test_a_crew_of_one_turns_by_itself() -> None:
    alone = pipeline(0, seats=1)
    said: list[Message] = []
    while (order := alone.next(5, 101.0)) is not None:
        losses = TrialResults(np.zeros(order.trials.n_members, dtype=np.float32), SUM)
        said += alone.passed(order, Passed(b"", losses), DIGEST, 101.0)
    assert said[:2] == [Taken(5, 67), Taken(5, 70)]
    assert isinstance(said[2], Result)


def test_what_comes_back_is_taken_first_and_only_of_members_that_were_passed_on() -> None:
    stem = pipeline(1)
    for span in SPANS[:2]:
        stem.received(activations(*span))
    stem.received(activations(64, 3, backward=True))
    order = ordered(stem)
    assert order.cotangents is None, "nothing was passed on"
    stem.passed(order, Passed(b"on"), DIGEST, 101.0)
    stem.received(activations(64, 3, backward=True))
    assert ordered(stem).cotangents is not None


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (activations(64, 2, backward=True), "expected 3 members"),
        (Activations(5, 64, 3, DIGEST, bytes(13), True), "12 bytes of 3, got 13 bytes"),
        (activations(67, 3, backward=True), "expected members from 64 on"),
        (activations(64, 3, backward=True), ""),
        (Activations(4, 64, 3, DIGEST, bytes(12), True), ""),
    ],
)
def test_what_comes_back_directly_is_looked_at(said: Activations, reason: str) -> None:
    first = pipeline(0)
    assert "expected cotangents of members before 64" in first.heard(activations(64, 3, backward=True))
    first.passed(ordered(first), Passed(b"made"), DIGEST, 101.0)
    problem = first.heard(said)
    assert reason in problem
    assert bool(problem) == bool(reason)
