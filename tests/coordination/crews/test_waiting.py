from collections.abc import Sequence
from typing import final

import pytest

from fedlearn.coordination.crews.crew import Crew, SeatHolder
from fedlearn.coordination.crews.crew_plan import CrewPlan, StageSpec
from fedlearn.coordination.crews.waiting import who_waits
from fedlearn.coordination.people.roster import Volunteer
from fedlearn.tasks.parts.activations import ActivationCodec
from tests.coordination.crews.replica import N_SEATS
from tests.coordination.crews.scene import Scene


@final
class Planner:
    wire: ActivationCodec = "float32"

    def fits(self, stage: StageSpec, memory_bytes: int) -> bool:
        return stage.need_bytes <= memory_bytes

    def draft(self, memories: Sequence[int], *, fewer: bool = False) -> CrewPlan | None:
        del fewer
        raise AssertionError(f"nobody is seated here: {memories}")

    def lack(self, memories: Sequence[int]) -> str:
        return f"{3 - len(memories)} more"


@pytest.fixture
def crew() -> Crew:
    """Of two who hold their parts."""
    stages = (StageSpec(("a",), 1, 1, 0, 1), StageSpec(("b",), 1, 0, 0, 1))
    made = Crew(3, CrewPlan((2,), 1, stages, (0, 1), 4), "float32")
    for place, name in enumerate(["Ada", "Bo"]):
        made.seat(SeatHolder(Volunteer(place + 1, name=name)), place)
    return made


def test_nobody_waits_where_all_seats_hold_their_parts(crew: Crew) -> None:
    assert who_waits([], [crew], Planner(), 100.0) == ""


def test_who_has_no_seat_waits_for_what_is_missing(crew: Crew) -> None:
    spares = [SeatHolder(Volunteer(number)) for number in (7, 8)]
    assert who_waits(spares[:1], [crew], Planner(), 0.0) == "1 volunteer waits for a part of the model: 2 more"
    assert who_waits(spares, [], Planner(), 0.0) == "2 volunteers wait for a part of the model: 1 more"


def test_empty_seats_are_waited_for(crew: Crew) -> None:
    crew.free(crew.seated[0], 0.0)
    assert who_waits([], [crew], Planner(), 0.0) == "crew 3 waits: 1 of its 2 seats are empty"


def test_who_loads_its_part_is_named_in_words_that_stay_the_same_for_a_while(crew: Crew) -> None:
    crew.seated[1].loading_since = 100.0
    said = [who_waits([], [crew], Planner(), 100.0 + passed_s) for passed_s in (0, 9, 10, 29, 30, 60, 299, 300, 9000)]
    loads = "crew 3 waits: Bo loads its part"
    assert said[:2] == [loads] * 2
    assert said[2:4] == [f"{loads} for more than 10 s"] * 2
    assert said[4:7] == [f"{loads} for more than 30 s", *[f"{loads} for more than a minute"] * 2]
    assert said[7:] == [f"{loads} for more than 5 min", f"{loads} for more than half an hour"]


def test_who_is_awaited_is_not_said_to_load_too(crew: Crew) -> None:
    crew.seated[1].loading_since, crew.seated[1].is_awaited = 100.0, True
    assert (
        who_waits([], [crew], Planner(), 200.0) == "Bo has a seat and does not answer, and nobody else is there for it"
    )


def test_a_seat_loads_from_when_it_is_sent_its_part_until_it_answers() -> None:
    scene = Scene()
    for _ in range(N_SEATS):
        scene.join()
    slow = scene.machines[2]
    for _ in range(20):
        scene.do_work()
        for peer, machine in scene.machines.items():
            machine.hear(scene.clock)
            if not (machine is slow and scene.is_loading(slow)):
                machine.compute(scene.clock)
            scene.hear(peer)
    assert scene.performer.waiting == "crew 1 waits: volunteer 2 loads its part"
    scene.wait(10.0)
    assert scene.performer.waiting.endswith(" for more than 10 s")
    scene.settle(2)
    assert scene.performer.waiting == ""
