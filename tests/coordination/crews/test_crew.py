"""A crew and its places, and what may be said in its name."""

import numpy as np
import pytest
from msgspec.structs import replace

from fedlearn.coordination.crews.complaints import complaint_of
from fedlearn.coordination.crews.crew import Crew, SeatHolder
from fedlearn.coordination.crews.crew_plan import CrewPlan, StageSpec
from fedlearn.coordination.effects import Send
from fedlearn.coordination.leases.lease import Lease
from fedlearn.coordination.people.roster import Phase, Volunteer
from fedlearn.es.perturbation import Perturbation
from fedlearn.wire.messages import Activations, Assignment, Result, Seat, Taken

DIGEST = bytes(8)
NOTHING = Perturbation(0.0, 0, "nothing")
GROUP = 8
FIRST = 64
BATCH = 5
WINDOW = 3
LEASE = Assignment(5, b"", Perturbation(0.1, 1), GROUP, FIRST, 128, 1.0)
STAGES = (StageSpec(("a",), 100, 8, 64, BATCH), StageSpec(("b", "c"), 200, 4, 0, BATCH))


def begin(crew: Crew, now: float) -> None:
    crew.begin(Lease(FIRST, LEASE.quota, leased_at=now), LEASE)


@pytest.fixture
def crew() -> Crew:
    """Of two, with a lease of 128 members from 64 on."""
    made = Crew(3, CrewPlan((2,), 1, STAGES, (0, 1), WINDOW), "float16")
    for place, name in enumerate(["Ada", "Bo"]):
        made.seat(SeatHolder(Volunteer(place + 1, name=name)), place)
    begin(made, 0.0)
    return made


def activations(first: int, count: int) -> Activations:
    return Activations(5, first, count, DIGEST, bytes(8 * count + 64 * (first % GROUP == 0)))


def test_a_crew_that_is_put_up_again_has_another_line(crew: Crew) -> None:
    crew.time_exchange(1, 1.5, 1.0)
    crew.put_up(crew.reputation, 1)
    crew.time_exchange(1, 3.0, 1.0)
    assert (crew.exchange_s, crew.line_s) == (2.0, 2.0)


@pytest.mark.parametrize(("most_bytes", "is_kept"), [(128 * (8 + 6), True), (128 * (8 + 6) - 1, False)])
def test_what_seats_send_is_kept_where_all_of_a_lease_without_noise_may_be(
    most_bytes: int, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedlearn.coordination.crews.crew.MOST_KEPT_BYTES", most_bytes)
    first, last = STAGES[0], replace(STAGES[1], received_bytes=6)
    crew = Crew(3, CrewPlan((2,), 1, (first, last), (0, 1), WINDOW), "float16")
    for place in range(2):
        crew.seat(SeatHolder(Volunteer(place + 1)), place)
    asked = replace(LEASE, perturbation=NOTHING, group_size=1)
    crew.begin(Lease(FIRST, asked.quota), asked)
    forward, back = (
        Activations(5, FIRST, 1, DIGEST, bytes(8)),
        Activations(5, FIRST, 1, DIGEST, bytes(6), backward=True),
    )
    for holder, said in zip(crew.seated, (forward, back), strict=True):
        crew.took(holder, said, 0.0)
    expected = [forward, back] if is_kept else [replace(forward, payload=b""), replace(back, payload=b"")]
    assert [said for sent in crew.sent for said in sent] == expected


def result(first: int, count: int) -> Result:
    return Result(5, first, np.zeros(count, np.float32), DIGEST)


def test_a_place_is_named_with_what_it_sends(crew: Crew) -> None:
    assert crew.message(0) == Seat(3, (2,), 1, 0, "float16", BATCH, WINDOW, 8, 64)
    assert [holder.tensors for holder in crew.seated] == [("a",), ("b", "c")]
    assert crew.name == "crew 3 (Ada, Bo)"


def test_a_crew_is_ready_once_all_its_parts_were_found_right(crew: Crew) -> None:
    is_complete = [crew.is_complete]
    for holder in crew.seated:
        assert holder.needs_part
        holder.volunteer.phase, holder.confirmed_at = Phase.READY, 0
        is_complete.append(crew.is_complete)
    crew.free(crew.seated[0], 7.0)
    assert [*is_complete, crew.is_complete] == [False, False, True, False]
    assert crew.incomplete_since == 7.0
    assert [holder.volunteer.name for holder in crew.seated] == ["Bo"]


def test_who_was_sent_a_part_is_no_spare_before_it_answers(crew: Crew) -> None:
    holder = crew.seated[0]
    assert holder.crew is crew
    crew.free(holder, 0.0)
    assert holder.tensors == ()
    spare = []
    for phase in (Phase.WAITING, Phase.SYNCING, Phase.READY):
        holder.volunteer.phase = phase
        spare.append(holder.is_spare)
    assert spare == [True, False, True]


def say(crew: Crew, place: int, said: Activations | Result | Taken) -> None:
    """What nobody can object to."""
    holder = crew.seated[place]
    assert complaint_of(crew, holder, said) == ""
    crew.took(holder, said, now=30.0)


def test_members_are_answered_for_in_order_and_by_each_seat_in_turn(crew: Crew) -> None:
    say(crew, 0, activations(64, 5))
    say(crew, 0, activations(69, 3))
    say(crew, 1, result(64, 8))
    say(crew, 0, activations(72, 5))
    assert complaint_of(crew, crew.seated[1], result(72, 8)) == (
        "members of crew 3 (Ada, Bo): expected some from 72 to 76, got 8 from 72 on"
    )


@pytest.mark.parametrize("span", [(64, 5), (72, 5), (0, 8), (69, 0), (2**62, 1)])
def test_members_of_others_or_once_more_may_not(crew: Crew, span: tuple[int, int]) -> None:
    say(crew, 0, activations(64, 5))
    problem = complaint_of(crew, crew.seated[0], activations(*span))
    assert problem.startswith("members of crew 3 (Ada, Bo): expected some from 69 to ")


def fill(crew: Crew) -> int:
    """Lets the first seat say all that it may, member by member; gives where it stops."""
    first = crew.seated[0]
    while not complaint_of(crew, first, said := activations(crew.done[0], 1)):
        crew.took(first, said, now=30.0)
    return crew.done[0]


def test_no_more_messages_are_on_their_way_than_the_window_has(crew: Crew) -> None:
    assert fill(crew) == FIRST + GROUP + 5, "groups of 8 are a message of 5 and one of 3"
    assert crew.make_room() == []
    say(crew, 1, Taken(5, FIRST + 5))
    assert crew.make_room() == [Send(1, Taken(5, FIRST + 5))]
    assert crew.make_room() == [], "it was told"
    assert fill(crew) == FIRST + 2 * GROUP
    say(crew, 1, result(FIRST, GROUP))
    assert crew.make_room() == [Send(1, Taken(5, FIRST + GROUP))]
    assert fill(crew) == FIRST + 2 * GROUP + 5


def test_members_are_through_once_every_seat_has_said_so(crew: Crew) -> None:
    crew.direct = frozenset([0])  # so the last seat may be ahead of the first one's word
    say(crew, 1, Taken(5, FIRST + 5))
    assert crew.make_room() == []
    crew.took(crew.seated[0], Activations(5, FIRST, 5, DIGEST, b""), now=30.0)
    assert crew.make_room() == [Send(1, Taken(5, FIRST + 5))]


def test_no_more_than_a_group_and_a_window_go_on_before_losses_are_handed_up(crew: Crew) -> None:
    for first in (FIRST, FIRST + GROUP):
        fill(crew)
        say(crew, 1, result(first, GROUP))
    assert fill(crew) == FIRST + 2 * GROUP + 5
    assert crew.make_room() == [Send(1, Taken(5, FIRST + GROUP))]
    assert crew.hand_up(result(FIRST, GROUP)) == [Send(1, Taken(5, FIRST + 2 * GROUP))]


@pytest.mark.parametrize("member", [0, FIRST, FIRST + 6, FIRST + GROUP, 2**62])
def test_the_last_seat_is_through_only_with_what_it_was_given_of_a_group(crew: Crew, member: int) -> None:
    say(crew, 0, activations(64, 5))
    problem = complaint_of(crew, crew.seated[1], Taken(5, member))
    assert problem == f"members of crew 3 (Ada, Bo): expected to be through before a member from 65 to 69, got {member}"


def test_whoever_is_through_with_a_group_says_its_losses(crew: Crew) -> None:
    say(crew, 0, activations(64, 5))
    say(crew, 1, Taken(5, 69))
    say(crew, 0, activations(69, 3))
    assert "from 70 to 71, got 72" in complaint_of(crew, crew.seated[1], Taken(5, 72))
    assert (
        complaint_of(crew, crew.seated[0], Taken(5, 72))
        == "seat 0 of crew 3 (Ada, Bo): expected activations, got Taken"
    )
    say(crew, 1, result(64, 8))


@pytest.mark.parametrize("place", [0, 1])
def test_nothing_comes_after_the_end_of_the_lease(crew: Crew, place: int) -> None:
    crew.taken = crew.reported = FIRST + 128
    crew.done = [FIRST + 128] * 2
    said = result(FIRST + 128, 8) if place else activations(FIRST + 128, 5)
    assert "expected some from 192 to 191, got" in complaint_of(crew, crew.seated[place], said)


@pytest.mark.parametrize(
    ("first", "count", "n_bytes"),
    [(64, 5, 103), (64, 5, 105), (64, 6, 112), (64, 5, 40), (69, 3, 24 + 64), (69, 4, 32), (69, 3, 0)],
)
def test_activations_are_of_one_group_and_as_long_as_planned(crew: Crew, first: int, count: int, n_bytes: int) -> None:
    if first > 64:
        say(crew, 0, activations(64, 5))
    problem = complaint_of(crew, crew.seated[0], Activations(5, first, count, DIGEST, bytes(n_bytes)))
    assert problem.startswith("activations of crew 3 (Ada, Bo): expected at most")


def test_losses_come_of_whole_groups_and_from_the_last_seat_only(crew: Crew) -> None:
    first, last = crew.seated
    assert complaint_of(crew, first, result(64, 8)) == "seat 0 of crew 3 (Ada, Bo): expected activations, got Result"
    assert (
        complaint_of(crew, last, activations(64, 8)) == "seat 1 of crew 3 (Ada, Bo): expected losses, got Activations"
    )
    say(crew, 0, activations(64, 5))
    say(crew, 0, activations(69, 3))
    expected = "members of crew 3 (Ada, Bo): expected losses of whole groups of 8, got 7"
    assert complaint_of(crew, last, result(64, 7)) == expected


def test_who_has_been_given_work_is_to_answer_by_its_time(crew: Crew) -> None:
    first, last = crew.seated
    dues = [(first.due, last.due)]
    for said in (activations(64, 5), activations(69, 3), activations(72, 5)):
        say(crew, 0, said)
        dues.append((first.due, last.due))
    say(crew, 1, result(64, 8))
    assert [*dues, (first.due, last.due)] == [
        (30.0, None),
        (60.0, 60.0),  # the rest of the first group is owed, even after the deadline
        (None, 60.0),
        (None, 60.0),
        (None, 60.0),  # a part of the second group
    ]


def test_nobody_is_waited_for_once_the_step_is_over_but_who_was_sent_a_part(crew: Crew) -> None:
    first, last = crew.seated
    last.volunteer.phase, last.due = Phase.SYNCING, 70.0
    crew.end(0.0)
    assert (first.due, last.due, crew.assignment) == (None, 70.0, None)
    crew.free(last, 0.0)
    assert last.due == 70.0, "it must answer before it is given another seat"


def test_a_step_that_ends_gives_nobody_new_time(crew: Crew) -> None:
    first, last = crew.seated
    crew.end(20.0)
    begin(crew, 100.0)
    assert (first.due, last.due) == (110.0, None), "of 30 s it used 20 in the step before"
    crew.took(first, activations(64, 5), 105.0)
    assert (first.due, last.due) == (135.0, 135.0)


def test_a_first_seat_that_may_not_go_on_owes_nothing_until_there_is_room(crew: Crew) -> None:
    crew.plan = replace(crew.plan, window=1)
    first = crew.seated[0]
    crew.took(first, activations(64, 5), 105.0)
    assert first.due is None
    crew.took(crew.seated[1], Taken(5, 69), 110.0)
    assert first.due == 140.0


def test_who_is_excused_has_twice_as_long_from_then_on(crew: Crew) -> None:
    first, _ = crew.seated
    first.excuse()
    begin(crew, 100.0)
    assert first.due == 160.0
    crew.took(first, activations(64, 5), 150.0)
    assert first.due == 210.0


def test_what_seats_sent_is_kept_until_its_losses_are_handed_up(crew: Crew) -> None:
    ada, bo = crew.seated
    for first, count in [(FIRST, 5), (FIRST + 5, 3), (FIRST + 8, 5)]:
        crew.took(ada, activations(first, count), 60.0)
    crew.took(bo, result(FIRST, GROUP), 60.0)
    log = crew.log(FIRST, GROUP)
    assert log is not None
    assert (log.cuts, log.shards, log.wire, log.batch) == ((2,), 1, "float16", BATCH)
    assert [[said.first_member for said in sent] for sent in log.sent] == [[FIRST, FIRST + 5]]
    assert log.is_whole(GROUP)
    crew.hand_up(result(FIRST, GROUP))
    assert crew.taken == FIRST + GROUP
    assert [said.first_member for said in crew.sent[0]] == [FIRST + GROUP]
    log = crew.log(FIRST, GROUP)
    assert log is not None
    assert not log.is_whole(GROUP)
    crew.end(60.0)
    assert crew.sent == [[]]


def test_no_more_is_kept_than_may_be_on_its_way(crew: Crew) -> None:
    ada, first = crew.seated[0], FIRST
    while not complaint_of(crew, ada, said := activations(first, min(BATCH, GROUP - first % GROUP))):
        crew.took(ada, said, 60.0)
        first += said.n_members
    assert len(crew.sent[0]) == WINDOW
