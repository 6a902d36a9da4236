"""Plans against brute force, and each thing that a plan must heed."""

import itertools
import math
import random
from collections.abc import Iterator, Sequence

import pytest

from fedlearn.graphs.pieces import Piece
from fedlearn.graphs.planning.crews import Machine, PlanError, PlannedCrew, PlannedCrews
from fedlearn.graphs.planning.parts import ModelCosts
from fedlearn.graphs.planning.planner import MAX_MACHINES, divide, plan
from tests.graphs.models import NEEDS, machine, model_of


def need_of(model: ModelCosts, first: int, end: int) -> int:
    """As the module says it: parameters by their bytes, and the activations of some members."""
    held = {name for piece in model.pieces[first:end] for name in piece.tensors}
    before = [0, *(piece.sent_bytes for piece in model.pieces)]
    alive = max(
        max(before[number] + before[number + 1], model.pieces[number].alive_bytes) for number in range(first, end)
    )
    numbers = sum(model.learned.get(name, 0) for name in held)
    frozen = sum(model.frozen.get(name, 0) for name in held)
    return NEEDS.parameter_bytes * numbers + NEEDS.members * (frozen + alive)


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    if not items:
        yield []
        return
    first, *rest = items
    for found in partitions(rest):
        yield [[first], *found]
        for number in range(len(found)):
            yield [*found[:number], [first, *found[number]], *found[number + 1 :]]


def slowest(model: ModelCosts, row: Sequence[Machine], cuts: Sequence[int]) -> float:
    """Seconds from one member to the next, of machines in this order with cuts at these places."""
    edges, seconds = [0, *cuts, len(model.pieces)], 0.0
    for number, at in enumerate(row):
        first, end = edges[number], edges[number + 1]
        if need_of(model, first, end) > at.memory_bytes:
            return math.inf
        work = sum(piece.multiply_adds for piece in model.pieces[first:end])
        seconds = max(seconds, work / at.multiply_adds_per_s)
        if number:
            line = min(row[number - 1].line_bytes_per_s, at.line_bytes_per_s)
            seconds = max(seconds, model.pieces[first - 1].sent_bytes / line)
    return seconds


def brute_force(model: ModelCosts, machines: Sequence[Machine]) -> float:
    """Members per second of the best crews there are."""

    def crew_s(members: list[int]) -> float:
        rows = itertools.permutations([machines[number] for number in members])
        cuts = list(itertools.combinations(range(1, len(model.pieces)), len(members) - 1))
        return min((slowest(model, row, cut) for row in rows for cut in cuts), default=math.inf)

    seconds = {
        members: crew_s(list(members))
        for size in range(1, len(machines) + 1)
        for members in itertools.combinations(range(len(machines)), size)
    }
    found = partitions(list(range(len(machines))))
    return max(sum(1 / seconds[tuple(sorted(crew))] for crew in crews) for crews in found)


def rate(found: PlannedCrews) -> float:
    return found.members_per_s


def names(crew: PlannedCrew) -> list[str]:
    return [seat.machine for seat in crew.seats]


def random_case(chance: random.Random) -> tuple[ModelCosts, list[Machine]]:
    n_pieces = chance.randint(2, 6)
    tied = chance.randrange(n_pieces)
    tensors = [(f"t{number}", "tied") if number in (tied, 0) else (f"t{number}",) for number in range(n_pieces)]
    pieces = [
        Piece(range(n, n + 1), tensors[n], chance.uniform(1, 10), chance.randint(1, 400), chance.randint(1, 999))
        for n in range(n_pieces)
    ]
    learned = {name: chance.randint(50, 400) for names in tensors for name in names}
    model = ModelCosts(pieces, learned, {"t1": chance.randint(1, 999)})
    machines = [
        machine(str(n), 1000.0 * chance.randint(2, 20), line=chance.uniform(10, 99), speed=chance.uniform(0.5, 5))
        for n in range(chance.randint(1, 4))
    ]
    return model, machines


@pytest.mark.parametrize("seed", range(60))
def test_a_crew_is_cut_where_it_is_fastest(seed: int) -> None:
    model, machines = random_case(random.Random(seed))
    try:
        found = plan(model, machines, NEEDS)
    except PlanError:
        return
    by_name = {each.name: each for each in machines}
    for crew in found.crews:
        row = [by_name[name] for name in names(crew)]
        cuts = list(itertools.combinations(range(1, len(model.pieces)), len(row) - 1))
        best = min(slowest(model, order, cut) for order in (row, row[::-1]) for cut in cuts)
        assert crew.seconds == pytest.approx(best)
        assert crew.seconds == pytest.approx(slowest(model, row, [seat.first for seat in crew.seats[1:]]))
        assert all(seat.need_bytes == need_of(model, seat.first, seat.end) for seat in crew.seats)
    if found.idle:
        with pytest.raises(PlanError):
            plan(model, [by_name[name] for name in found.idle], NEEDS)


def test_the_greedy_rule_mostly_finds_a_crew_where_there_is_one_and_is_fast() -> None:
    rates, best = [], []
    for seed in range(60):
        model, machines = random_case(random.Random(seed))
        best.append(brute_force(model, machines))
        try:
            rates.append(rate(plan(model, machines, NEEDS)))
        except PlanError:
            rates.append(0.0)
        assert rates[-1] <= best[-1] * (1 + 1e-6)
    assert sum(mine == 0.0 < there for mine, there in zip(rates, best, strict=True)) <= 3
    assert sum(rates) > 0.8 * sum(best)


def test_random_cases_are_not_all_alike() -> None:
    sizes = set[int]()
    for seed in range(60):
        model, machines = random_case(random.Random(seed))
        try:
            sizes.update(len(crew.seats) for crew in plan(model, machines, NEEDS).crews)
        except PlanError:
            sizes.add(0)
    assert sizes >= {0, 1, 2, 3}


def test_machines_that_can_hold_all_of_it_need_no_crew() -> None:
    found = plan(model_of([1, 1], [8, 4]), [machine("a", 1e6), machine("b", 1e6)], NEEDS)
    assert [names(crew) for crew in found.crews] == [["a"], ["b"]]
    assert [crew.seats[0].role for crew in found.crews] == ["whole", "whole"]
    assert rate(found) == pytest.approx(1.0)


def test_roles_are_root_stems_and_leaf() -> None:
    model = model_of([1, 1, 1, 1], [8, 8, 8, 4])
    (crew,) = plan(model, [machine(name, 1100) for name in "abcd"], NEEDS).crews
    assert [seat.role for seat in crew.seats] == ["root", "stem", "stem", "leaf"]
    assert [(seat.first, seat.end) for seat in crew.seats] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert [seat.received_bytes for seat in crew.seats] == [0, 8, 8, 8]
    assert [seat.sent_bytes for seat in crew.seats] == [8, 8, 8, 0]
    assert [seat.tensors for seat in crew.seats] == [("t0",), ("t1",), ("t2",), ("t3",)]


def test_faster_machine_does_more_of_the_work() -> None:
    model = model_of([1] * 8, [8] * 8)
    (crew,) = plan(model, [machine("slow", 6100), machine("fast", 6100, speed=3.0)], NEEDS).crews
    seats = {seat.machine: seat.end - seat.first for seat in crew.seats}
    assert seats == {"slow": 2, "fast": 6}
    assert crew.seconds == pytest.approx(2.0)


def test_slow_line_moves_the_cut_to_where_less_is_sent() -> None:
    model, machines = model_of([1, 1, 1, 1], [100, 800, 100, 4]), [machine("a", 4200), machine("b", 4200)]
    (crew,) = plan(model, machines, NEEDS).crews
    assert crew.seats[0].end == 2
    (crew,) = plan(model, [machine("a", 5000, line=1e9), machine("b", 5000, line=100.0)], NEEDS).crews
    assert crew.seats[0].sent_bytes == 100
    assert crew.seconds == pytest.approx(3.0)


def test_line_is_as_slow_as_the_slower_of_its_ends() -> None:
    model = model_of([1, 1], [100, 4])
    for lines in ((10.0, 1e9), (1e9, 10.0)):
        machines = [machine(name, 1900, line=line) for name, line in zip("ab", lines, strict=True)]
        (crew,) = plan(model, machines, NEEDS).crews
        assert crew.seconds == pytest.approx(10.0)
        assert [seat.seconds for seat in crew.seats] == pytest.approx([1.0, 10.0])


def test_tied_tensor_is_counted_on_both_seats_and_once_on_one() -> None:
    model = model_of([1, 1, 1, 1], [8, 8, 8, 4], tensors=[("tied",), ("t",), ("u",), ("tied",)])
    (whole,) = plan(model, [machine("a", 3100)], NEEDS).crews
    assert whole.seats[0].need_bytes == 3000 + 2 * 16
    (crew,) = plan(model, [machine("a", 2100), machine("b", 2100)], NEEDS).crews
    assert [seat.tensors for seat in crew.seats] == [("tied", "t"), ("u", "tied")]
    assert [seat.need_bytes for seat in crew.seats] == [2000 + 2 * 16, 2000 + 2 * 16]


def test_activations_take_memory_for_each_member() -> None:
    model = model_of([1, 1], [100, 4])
    (crew,) = plan(model, [machine("a", 1300), machine("b", 1300)], NEEDS).crews
    assert [seat.need_bytes for seat in crew.seats] == [1000 + 2 * 100, 1000 + 2 * 104]


def test_machine_that_would_slow_its_crew_is_idle() -> None:
    model = model_of([1, 1], [8, 4])
    found = plan(model, [machine("a", 1100), machine("b", 1100), machine("tiny", 10.0)], NEEDS)
    assert found.idle == ("tiny",)
    assert len(found.crews) == 1


def test_the_smallest_machine_that_completes_a_crew_is_taken() -> None:
    model = model_of([1] * 5, [8] * 5)
    machines = [machine("large", 4100), machine("small", 1100), machine("larger", 4200), machine("tiny", 10)]
    found = plan(model, [*machines, machine("smaller", 1050)], NEEDS)
    assert [sorted(names(crew)) for crew in found.crews] == [["large", "small"], ["larger", "smaller"]]
    assert found.idle == ("tiny",)


def test_ties_go_to_fewer_machines_and_to_those_that_were_named_first() -> None:
    model = model_of([1, 1], [8, 4])
    machines = [machine(name, 1100) for name in "abcde"]
    found = plan(model, machines, NEEDS)
    assert [sorted(names(crew)) for crew in found.crews] == [["a", "b"], ["c", "d"]]
    assert found.idle == ("e",)
    assert plan(model, machines, NEEDS) == found


def test_refusal_says_how_much_is_missing_in_all_and_where() -> None:
    model = model_of([1, 1, 1], [10, 10, 4], size=10**8)
    with pytest.raises(PlanError) as raised:
        plan(model, [machine("a", 1e9), machine("b", 0.75e9)], NEEDS)
    said = str(raised.value)
    assert "which takes 3 GB, got 1.75 GB in 2 of them, 1.25 GB too little" in said
    assert "node a with 1 GB holds" in said
    assert said.endswith("which take 2 GB: 1 GB are missing there")


def test_refusal_names_the_piece_that_no_machine_holds() -> None:
    model = model_of([1, 1], [10, 4], size=10**8)
    with pytest.raises(PlanError, match=r"holds t1 to t1, which take 1 GB: 0.1 GB are missing there") as raised:
        plan(model, [machine(name, 0.9e9) for name in "abc"], NEEDS)
    assert "too little" not in str(raised.value)


def test_parts_follow_the_memory_of_machines_in_their_order() -> None:
    model = model_of([1] * 9, [8] * 9, size=1000)
    (crew,) = divide(model, [machine("0", 2e6), machine("1", 1e6)], NEEDS).crews
    assert [(seat.machine, seat.first, seat.end) for seat in crew.seats] == [("0", 0, 6), ("1", 6, 9)]
    (crew,) = divide(model, [machine("0", 1e6), machine("1", 2e6)], NEEDS).crews
    assert [(seat.machine, seat.first, seat.end) for seat in crew.seats] == [("0", 0, 3), ("1", 3, 9)]


def test_machines_of_one_crew_keep_their_order_though_another_would_suit_better() -> None:
    model = ModelCosts(model_of([1, 1], [8, 4]).pieces, {"t0": 1000, "t1": 2000}, {})
    (crew,) = divide(model, [machine("0", 1e6), machine("1", 0.5e6)], NEEDS).crews
    assert [(seat.machine, seat.tensors) for seat in crew.seats] == [("0", ("t0",)), ("1", ("t1",))]


def test_of_equal_divisions_the_one_that_sends_the_least_is_taken() -> None:
    pieces = model_of([1] * 4, [50, 5, 8, 4]).pieces
    model = ModelCosts(pieces, {"t0": 10, "t1": 10, "t2": 10, "t3": 1000}, {})
    (crew,) = divide(model, [machine(name, 1e6) for name in "abc"], NEEDS).crews
    assert [seat.first for seat in crew.seats] == [0, 2, 3]


def test_division_needs_a_piece_for_each_machine_and_room() -> None:
    model = model_of([1, 1], [8, 4], size=10**8)
    with pytest.raises(PlanError, match="expected at most 2 for one crew of this model, got 3"):
        divide(model, [machine(name, 1e10) for name in "abc"], NEEDS)
    with pytest.raises(PlanError, match=r"holds t0 to t0, which take 1 GB: 0.1 GB are missing there"):
        divide(model, [machine("small", 0.9e9), machine("large", 9e9)], NEEDS)


def test_crews_are_made_until_nobody_is_left() -> None:
    model = model_of([1, 1, 1], [8, 8, 4])
    machines = [machine(f"m{number}", 1100.0) for number in range(MAX_MACHINES + 3)]
    found = plan(model, machines, NEEDS)
    assert [len(crew.seats) for crew in found.crews] == [3] * 5
    assert found.idle == ()
    assert plan(model, machines, NEEDS) == found


def test_large_model_gets_the_largest_machines_of_many_together() -> None:
    model = model_of([1] * 4, [8] * 4)
    machines = [machine(f"small{n}", 10.0) for n in range(10)] + [machine(f"large{n}", 1100.0) for n in range(4)]
    (crew,) = plan(model, machines, NEEDS).crews
    assert sorted(names(crew)) == [f"large{n}" for n in range(4)]


def test_who_can_hold_all_of_it_waits_for_nobody() -> None:
    model = model_of([1] * 10, [8] * 10)
    machines = [machine(f"large{n}", 11000.0) for n in range(12)] + [machine(f"small{n}", 4100.0) for n in range(2)]
    found = plan(model, machines, NEEDS)
    assert [names(crew) for crew in found.crews] == [[f"large{n}"] for n in range(12)]
    assert found.idle == ("small0", "small1")


def test_a_model_whose_end_is_the_largest_part_gets_the_largest_machine_last() -> None:
    model = ModelCosts(model_of([1, 1], [8, 4]).pieces, {"t0": 100, "t1": 1000}, {})
    (crew,) = plan(model, [machine("large", 10_500), machine("small", 1100)], NEEDS).crews
    assert names(crew) == ["small", "large"]


def test_of_many_pieces_a_cut_is_looked_at_in_each_stretch() -> None:
    chance = random.Random(1)
    sent = [chance.randint(10, 1000) for _ in range(600)]
    model = model_of([1] * 600, sent)
    (crew,) = plan(model, [machine("a", 400_000), machine("b", 400_000)], NEEDS).crews
    assert crew.seconds < 303
    assert crew.seats[0].end in range(297, 304)
