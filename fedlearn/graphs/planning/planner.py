"""Who holds which part of a model: crews of machines that each hold one whole replica.

Exact for up to `MAX_MACHINES`: of all crews and all cuts those that try the most members per second. A machine
computes, sends and receives at the same time, on different members, so a crew is as fast as the slowest of its machines
and lines.
"""

import math
from collections.abc import Sequence

import numpy as np

from fedlearn.graphs.planning.chains import Place, bottlenecks, can_reach, row_in_order, row_of, share_out
from fedlearn.graphs.planning.crews import LacksMemory, Machine, PlanError, PlannedCrew, PlannedCrews, PlannedSeat
from fedlearn.graphs.planning.packs import packs
from fedlearn.graphs.planning.parts import Float64Array, ModelCosts, Needs, PartCosts, held_by, parts_of

MAX_MACHINES = 12
"""The most machines in one exact plan, and so in one crew."""
_MAX_PLACES = 512
_MAX_STEPS = 2**27
"""The most steps of the dynamic program, which bound the places it looks at: 73 with 12 machines, all 512 with 6."""


def plan(model: ModelCosts, machines: Sequence[Machine], needs: Needs) -> PlannedCrews:
    """The crews that try the most members per second together.

    More than `MAX_MACHINES` are planned in packs: see `packs`.

    Raises:
        LacksMemory: no crew of these machines can hold the model.
    """
    if len(machines) <= MAX_MACHINES:
        found = _exact(model, machines, needs)
    else:
        found = packs(machines, MAX_MACHINES, lambda pack: _exact(model, pack, needs))
    if not found:
        raise _closest(model, machines, needs)
    place = {machine.name: number for number, machine in enumerate(machines)}
    crews = sorted(found, key=lambda crew: min(place[seat.machine] for seat in crew.seats))
    seated = {seat.machine for crew in crews for seat in crew.seats}
    return PlannedCrews(tuple(crews), tuple(machine.name for machine in machines if machine.name not in seated))


def can_hold(model: ModelCosts, machines: Sequence[Machine], needs: Needs) -> bool:
    """Whether `plan` finds any crew, in a small part of its time."""
    largest = _largest(machines)
    parts = _parts(model, len(largest), needs)
    return can_reach(np.stack([parts.need <= machine.memory_bytes for machine in largest]))


def divide(model: ModelCosts, machines: Sequence[Machine], needs: Needs) -> PlannedCrews:
    """One crew of all machines, in their order, whose parts are as large as their memories are.

    Raises:
        LacksMemory: they can't hold the model so.
        PlanError: there are more machines than pieces, or `MAX_MACHINES`.
    """
    most = min(MAX_MACHINES, len(model.pieces))
    if len(machines) > most:
        raise PlanError(f"nodes: expected at most {most} for one crew of this model, got {len(machines)}")
    parts = _parts(model, len(machines), needs)
    shares = np.stack([parts.need / machine.memory_bytes for machine in machines])
    largest, row = row_in_order(shares, parts.sent)
    if largest > 1.0:
        raise _missing(row, model, machines, parts)
    return PlannedCrews((_crew(row, model, machines, parts),), ())


def _exact(model: ModelCosts, machines: Sequence[Machine], needs: Needs) -> list[PlannedCrew]:
    parts = _parts(model, len(machines), needs)
    costs, lines = _seconds(parts, machines)
    best = bottlenecks(costs, lines)
    slowest = best[:, :, -1].min(axis=1)
    sets = share_out([0.0 if math.isinf(seconds) else 1 / seconds for seconds in slowest])
    return [_crew(row_of(best, costs, lines, parts.sent, chosen), model, machines, parts) for chosen in sets]


def _parts(model: ModelCosts, n_machines: int, needs: Needs) -> PartCosts:
    steps_per_place = n_machines * 2 ** (n_machines - 1)
    return parts_of(model, needs, max_places=min(math.isqrt(_MAX_STEPS // steps_per_place), _MAX_PLACES))


def _seconds(parts: PartCosts, machines: Sequence[Machine]) -> tuple[Float64Array, Float64Array]:
    """A member's costs: [machines, places, places] to compute, [machines, machines, places] on the line between two."""
    work = parts.work[None, :] - parts.work[:, None]
    costs = [
        np.where(parts.need <= machine.memory_bytes, work / machine.multiply_adds_per_s, np.inf) for machine in machines
    ]
    speeds = np.array([machine.line_bytes_per_s for machine in machines])
    slower = np.minimum(speeds[:, None], speeds[None, :])
    return np.stack(costs), parts.sent / slower[:, :, None]


def _crew(row: Sequence[Place], model: ModelCosts, machines: Sequence[Machine], parts: PartCosts) -> PlannedCrew:
    costs, lines = _seconds(parts, machines)
    seats: list[PlannedSeat] = []
    for number, (machine, left, right) in enumerate(row):
        is_last = number == len(row) - 1
        line_s = lines[row[number - 1][0], machine, left] if number else 0.0
        first, end = parts.places[left], parts.places[right]
        seats.append(
            PlannedSeat(
                machine=machines[machine].name,
                role=("whole" if is_last else "root") if not number else "leaf" if is_last else "stem",
                first=first,
                end=end,
                tensors=held_by(model, first, end),
                need_bytes=int(parts.need[left, right]),
                received_bytes=int(parts.sent[left]),
                sent_bytes=int(parts.sent[right]),
                seconds=float(max(costs[machine, left, right], line_s)),
            )
        )
    return PlannedCrew(tuple(seats), max(seat.seconds for seat in seats))


def _closest(model: ModelCosts, machines: Sequence[Machine], needs: Needs) -> LacksMemory:
    """What the largest machines lack in the division that lacks the least on any of them."""
    largest = _largest(machines)
    parts = _parts(model, len(largest), needs)
    lacks = np.stack([parts.need - machine.memory_bytes for machine in largest])
    lines = np.full((len(largest), len(largest), len(parts.places)), -np.inf)
    best = bottlenecks(lacks, lines)
    members = int(best[:, :, -1].min(axis=1).argmin())
    return _missing(row_of(best, lacks, lines, parts.sent, members), model, largest, parts)


def _largest(machines: Sequence[Machine]) -> list[Machine]:
    """Those that can hold a model, if any crew of all of them can."""
    return sorted(machines, key=lambda machine: -machine.memory_bytes)[:MAX_MACHINES]


def _missing(row: Sequence[Place], model: ModelCosts, machines: Sequence[Machine], parts: PartCosts) -> LacksMemory:
    """What the machines of a row lack together, and the one that lacks the most."""
    there = math.fsum(machine.memory_bytes for machine in machines)
    whole = float(parts.need[0, -1])
    in_all = f", {_gb(whole - there)} too little" if whole > there else ""
    number, left, right = max(row, key=lambda place: parts.need[place[1:]] - machines[place[0]].memory_bytes)
    machine, need = machines[number], float(parts.need[left, right])
    tensors = held_by(model, parts.places[left], parts.places[right])
    return LacksMemory(
        f"memory: expected nodes that can hold the model, which takes {_gb(whole)}, got {_gb(there)} in "
        f"{len(machines)} of them{in_all}; in the closest division node {machine.name} with "
        f"{_gb(machine.memory_bytes)} holds {tensors[0]} to {tensors[-1]}, which take {_gb(need)}: "
        f"{_gb(need - machine.memory_bytes)} are missing there"
    )


def _gb(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:.3g} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.3g} MB"
