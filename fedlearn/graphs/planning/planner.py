"""Plans which machine holds which part of a model: crews of machines, each of which holds one whole replica.

The rule for crews is greedy: the largest machines that are left make the next crew, as few of them as can hold the
model, and the last of them is the smallest that completes it. They are sorted by memory, the largest first or last.
The cuts of a crew are exact: of all cuts, those with which it tries the most members per second. A machine computes,
sends and receives at the same time, on different members, so a crew is as fast as the slowest of its machines and
lines.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from fedlearn.graphs.planning.crews import LacksMemory, Machine, PlanError, PlannedCrew, PlannedCrews, PlannedSeat
from fedlearn.graphs.planning.parts import Float64Array, ModelCosts, Needs, PartCosts, held_by, parts_of

MAX_MACHINES = 12
"""The most machines in one crew."""
_MAX_PLACES = 512

Place = tuple[int, int, int]
"""A machine, and the numbers of the places that it works between."""


def plan(model: ModelCosts, machines: Sequence[Machine], needs: Needs) -> PlannedCrews:
    """The crews of the greedy rule, in the order of their first machines, and the machines that are left.

    Raises:
        LacksMemory: no crew of these machines can hold the model.
    """
    parts = parts_of(model, needs, max_places=_MAX_PLACES)
    left, crews = _by_memory(machines), list[PlannedCrew]()
    while chosen := _next_crew(left, parts):
        crews.append(_crew(chosen, model, parts))
        left = [machine for machine in left if machine not in chosen]
    if not crews:
        largest = left[: min(MAX_MACHINES, len(model.pieces))]
        _, row = _closest(largest, parts)
        raise _missing(row, model, left, parts)
    place = {machine.name: number for number, machine in enumerate(machines)}
    crews.sort(key=lambda crew: min(place[seat.machine] for seat in crew.seats))
    return PlannedCrews(tuple(crews), tuple(machine.name for machine in machines if machine in left))


def divide(model: ModelCosts, machines: Sequence[Machine], needs: Needs) -> PlannedCrews:
    """One crew of all machines in their order, with parts in proportion to their memories.

    Raises:
        LacksMemory: the machines can't hold the model in this way.
        PlanError: there are more machines than pieces, or than `MAX_MACHINES`.
    """
    most = min(MAX_MACHINES, len(model.pieces))
    if len(machines) > most:
        raise PlanError(f"nodes: expected at most {most} for one crew of this model, got {len(machines)}")
    parts = parts_of(model, needs, max_places=_MAX_PLACES)
    shares = np.stack([parts.need / machine.memory_bytes for machine in machines])
    largest, row = _row_in_order(shares, parts.sent)
    if largest > 1.0:
        raise _missing(row, model, machines, parts)
    return PlannedCrews((_seated(row, _seconds(parts, machines), model, machines, parts),), ())


def _by_memory(machines: Sequence[Machine]) -> list[Machine]:
    """The machines sorted by memory, the largest first; equal ones keep their order."""
    return sorted(machines, key=lambda machine: -machine.memory_bytes)


def _next_crew(machines: Sequence[Machine], parts: PartCosts) -> list[Machine]:
    """The next crew of these machines, which are sorted by memory; empty if they can't hold the model."""
    for size in range(1, min(len(machines), MAX_MACHINES, len(parts.places) - 1) + 1):
        first = list(machines[: size - 1])
        if not _fits([*first, machines[size - 1]], parts):
            continue
        # The smallest that fits: whatever fits stands before whatever does not.
        end = bisect_left(machines, True, lo=size, key=lambda last: not _fits([*first, last], parts))
        smallest = machines[end - 1].memory_bytes
        return [*first, next(last for last in machines[size - 1 :] if last.memory_bytes == smallest)]
    return []


def _fits(chosen: Sequence[Machine], parts: PartCosts) -> bool:
    return any(_closest(row, parts)[0] <= 0.0 for row in _orders(chosen))


def _closest(row: Sequence[Machine], parts: PartCosts) -> tuple[float, list[Place]]:
    """The most bytes that any of these machines lacks where that is the least, and the division that gives it."""
    return _row_in_order(np.stack([parts.need - machine.memory_bytes for machine in row]), parts.sent)


def _orders(chosen: Sequence[Machine]) -> list[Sequence[Machine]]:
    return [chosen, chosen[::-1]]


def _crew(chosen: Sequence[Machine], model: ModelCosts, parts: PartCosts) -> PlannedCrew:
    """The fastest crew of these machines."""
    found = []
    for row in _orders(chosen):
        seconds = _seconds(parts, row)
        memories = np.array([machine.memory_bytes for machine in row])[:, None, None]
        slowest, seats = _row_in_order(np.where(parts.need <= memories, seconds, np.inf), parts.sent)
        found.append((slowest, seats, seconds, row))
    _, seats, seconds, row = min(found, key=lambda each: each[0])
    return _seated(seats, seconds, model, row, parts)


def _seconds(parts: PartCosts, row: Sequence[Machine]) -> Float64Array:
    """Seconds of a member, [machines, places, places]: those of each machine, or of the line from the one before it."""
    work = parts.work[None, :] - parts.work[:, None]
    seconds = np.stack([work / machine.multiply_adds_per_s for machine in row])
    for number in range(1, len(row)):
        line = min(row[number - 1].line_bytes_per_s, row[number].line_bytes_per_s)
        seconds[number] = np.maximum(seconds[number], (parts.sent / line)[:, None])
    return seconds


def _seated(
    row: Sequence[Place], seconds: Float64Array, model: ModelCosts, machines: Sequence[Machine], parts: PartCosts
) -> PlannedCrew:
    seats: list[PlannedSeat] = []
    for number, left, right in row:
        is_last = number == len(row) - 1
        first, end = parts.places[left], parts.places[right]
        seats.append(
            PlannedSeat(
                machine=machines[number].name,
                role=("whole" if is_last else "root") if not number else "leaf" if is_last else "stem",
                first=first,
                end=end,
                tensors=held_by(model, first, end),
                need_bytes=int(parts.need[left, right]),
                received_bytes=int(parts.sent[left]),
                sent_bytes=int(parts.sent[right]),
                seconds=float(seconds[number, left, right]),
            )
        )
    return PlannedCrew(tuple(seats), max(seat.seconds for seat in seats))


def _missing(row: Sequence[Place], model: ModelCosts, machines: Sequence[Machine], parts: PartCosts) -> LacksMemory:
    """The memory that the machines of a row lack together, and which of them lacks the most."""
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


def _row_in_order(costs: Float64Array, sent: Float64Array) -> tuple[float, list[Place]]:
    """The fastest row of all machines in their order, after its cost; among equal cuts, those that send the least.

    It is an exact dynamic program over places. Ties go to the first found, so that everyone finds the same row.
    """
    n, _, n_places = costs.shape
    best = np.empty((n, n_places))
    best[0] = costs[0, 0]
    for machine in range(1, n):
        best[machine] = np.maximum(best[machine - 1][:, None], costs[machine]).min(axis=0)
    row: list[Place] = []
    right = n_places - 1
    for machine in range(n - 1, 0, -1):
        slowest = np.maximum(best[machine - 1], costs[machine, :, right])
        left = int(np.lexsort((sent, slowest))[0])
        row.insert(0, (machine, left, right))
        right = left
    return float(best[-1, -1]), [(0, 0, right), *row]
