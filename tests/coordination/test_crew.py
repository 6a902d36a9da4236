"""A crew and its places, and what may be said in its name."""

import numpy as np
import pytest

from fedlearn.coordination.crew import Crew, Draft, Line, Place, Sitter
from fedlearn.coordination.roster import Volunteer
from fedlearn.es.perturbation import Perturbation
from fedlearn.wire.messages import Activations, Assignment, Result, Seat

DIGEST = bytes(8)
PLACES = (Place(("a",), 100, 8, 64, 16), Place(("b", "c"), 200, 4, 0, 16))


@pytest.fixture
def crew() -> Crew:
    """Of two, with a lease of 32 members from 64 on."""
    made = Crew(3, Draft((2,), 1, PLACES, (0, 1)))
    for place, name in enumerate(["Ada", "Bo"]):
        made.seat(Sitter(Volunteer(place + 1, name=name)), place)
    made.assignment = Assignment(5, b"", Perturbation(0.1, 1), 8, 64, 32, 1.0)
    return made


def activations(first: int, count: int) -> Activations:
    return Activations(5, first, count, DIGEST, b"")


def result(first: int, count: int) -> Result:
    return Result(5, first, np.zeros(count, np.float32), DIGEST)


def test_a_place_is_named_with_what_it_sends(crew: Crew) -> None:
    assert crew.message(0, wire="float16", window=4) == Seat(3, (2,), 1, 0, "float16", 16, 4, 8, 64)
    assert [sitter.tensors for sitter in crew.seated] == [("a",), ("b", "c")]
    assert crew.name == "crew 3 (Ada, Bo)"


def test_a_crew_is_ready_once_all_its_parts_were_found_right(crew: Crew) -> None:
    is_ready = [crew.is_ready]
    for sitter in crew.seated:
        assert sitter.needs_part
        sitter.line, sitter.proven_at = Line.ACTIVE, 0
        is_ready.append(crew.is_ready)
    crew.free(crew.seated[0], 7.0)
    assert [*is_ready, crew.is_ready] == [False, False, True, False]
    assert crew.incomplete_since == 7.0
    assert [sitter.volunteer.name for sitter in crew.seated] == ["Bo"]


def test_who_was_sent_a_part_is_no_spare_before_it_answers(crew: Crew) -> None:
    sitter = crew.seated[0]
    assert sitter.crew is crew
    crew.free(sitter, 0.0)
    assert sitter.tensors == ()
    spare = []
    for line in Line:
        sitter.line = line
        spare.append(sitter.is_spare)
    assert spare == [True, False, True]


@pytest.mark.parametrize("span", [(64, 32), (88, 8), (64, 1)])
def test_members_of_the_lease_may_be_answered_for(crew: Crew, span: tuple[int, int]) -> None:
    assert crew.complaint(crew.seated[0], activations(*span)) == ""
    assert crew.complaint(crew.seated[1], result(*span)) == ""


@pytest.mark.parametrize("span", [(96, 8), (88, 16), (0, 8), (64, 0)])
def test_members_of_others_may_not(crew: Crew, span: tuple[int, int]) -> None:
    problem = crew.complaint(crew.seated[1], result(*span))
    assert problem.startswith("members of crew 3 (Ada, Bo): expected some of 64 to 95, got")


def test_losses_come_from_the_last_seat_only(crew: Crew) -> None:
    first, last = crew.seated
    assert crew.complaint(first, result(64, 8)) == "seat 0 of crew 3 (Ada, Bo): expected activations, got Result"
    assert crew.complaint(last, activations(64, 8)) == "seat 1 of crew 3 (Ada, Bo): expected losses, got Activations"
