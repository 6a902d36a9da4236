"""What a seat takes straight from the seat before, when no server has looked at it."""

import pytest

from fedlearn.coordination.work.pipeline import Pipeline
from fedlearn.es.perturbation import Perturbation
from fedlearn.wire.messages import Activations, Assignment, Seat, SeatBefore

BEFORE = SeatBefore(bytes(32), 4, 10, 3)
WINDOW = 2
LEASE = Assignment(5, b"", Perturbation(0.1, 1), 8, 64, 16, 9.0)


def said(first: int, count: int = 4, *, step: int = 5, n_bytes: int | None = None) -> Activations:
    begins = 3 if first % 8 == 0 else 0
    return Activations(step, first, count, bytes(8), bytes(10 * count + begins if n_bytes is None else n_bytes))


@pytest.fixture
def pipeline() -> Pipeline:
    made = Pipeline(Seat(1, (1,), 1, 1, "float32", 4, WINDOW, 0, 0))
    made.hear(BEFORE)
    return made


def members(pipeline: Pipeline) -> list[int]:
    """The first members of what can be computed."""
    found = []
    while (order := pipeline.next(5, 0.0)) is not None:
        found.append(order.trials.first_member)
    return found


def test_what_comes_sooner_than_its_lease_waits_for_it(pipeline: Pipeline) -> None:
    assert [pipeline.heard(said(first)) for first in (64, 68)] == ["", ""]
    assert members(pipeline) == []
    assert pipeline.assign(LEASE, 0.0) == ""
    assert pipeline.heard(said(72)) == ""
    assert members(pipeline) == [64, 68, 72]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (said(64, n_bytes=42), "expected at most 4 members and 43 bytes of 4, got 42 bytes"),
        (said(64, 5), "expected at most 4 members"),
        (said(68), "expected members from 64 on, got some from 68 on"),
    ],
)
def test_what_is_not_as_the_plan_says_is_named_and_not_taken(
    pipeline: Pipeline, wrong: Activations, reason: str
) -> None:
    pipeline.assign(LEASE, 0.0)
    assert reason in pipeline.heard(wrong)
    assert members(pipeline) == []
    pipeline.hear(BEFORE)
    pipeline.clear()
    assert pipeline.heard(wrong) == ""
    assert reason in pipeline.assign(LEASE, 0.0), "also where it was early"


def test_what_is_of_a_lease_that_is_over_is_passed_over(pipeline: Pipeline) -> None:
    pipeline.assign(LEASE, 0.0)
    assert [pipeline.heard(each) for each in (said(64, step=4), said(56), said(64), said(64))] == [""] * 4
    assert members(pipeline) == [64]


def test_what_is_early_has_a_bound(pipeline: Pipeline) -> None:
    answers = [pipeline.heard(said(64 + 4 * number)) for number in range(WINDOW + 1)]
    assert answers[:-1] == [""] * WINDOW
    assert "bytes before their lease" in answers[-1]


def test_what_is_early_is_counted_until_it_is_not_wanted(pipeline: Pipeline) -> None:
    counted = []
    for first in (64, 68):
        pipeline.heard(said(first))
        counted.append(pipeline.bytes_waiting)
    pipeline.assign(LEASE, 0.0)
    counted.append(pipeline.bytes_waiting)
    pipeline.heard(said(80))
    counted.append(pipeline.bytes_waiting)
    pipeline.hear(None)
    assert [*counted, pipeline.bytes_waiting] == [43, 83, 83, 126, 83]


def test_nobody_is_heard_who_was_not_named(pipeline: Pipeline) -> None:
    pipeline.hear(None)
    pipeline.assign(LEASE, 0.0)
    assert pipeline.heard(said(64)) == ""
    assert members(pipeline) == []
