"""More machines than one exact plan takes: they are planned in packs, by rules that everybody repeats."""

import math
from collections.abc import Callable, Iterable, Sequence

from fedlearn.graphs.planning.crews import Machine, PlannedCrew

Exact = Callable[[Sequence[Machine]], list[PlannedCrew]]
Pack = list[Machine]


def packs(machines: Sequence[Machine], size: int, exact: Exact) -> list[PlannedCrew]:
    """Crews of packs of at most `size` machines, each pack planned by `exact`.

    Machines are taken by their memory, the largest first, and packed in two ways: each to the pack that has the
    least memory so far, or one pack after the other until it is full, since a large model may need the largest
    machines together. Whoever is left idle is packed again, until nobody finds a seat. The way counts that tries
    more members per second.
    """
    by_memory = sorted(machines, key=lambda machine: -machine.memory_bytes)
    ways = [_crews(by_memory, size, exact, way) for way in (_dealt, _filled)]
    return max(ways, key=lambda crews: math.fsum(1 / crew.seconds for crew in crews))


def _crews(machines: Pack, size: int, exact: Exact, way: Callable[[Pack, int], Iterable[Pack]]) -> list[PlannedCrew]:
    crews: list[PlannedCrew] = []
    while machines and (found := [crew for pack in way(machines, size) for crew in exact(pack)]):
        crews += found
        seated = {seat.machine for crew in found for seat in crew.seats}
        machines = [machine for machine in machines if machine.name not in seated]
    return crews


def _dealt(machines: Pack, size: int) -> list[Pack]:
    dealt: list[Pack] = [[] for _ in range(math.ceil(len(machines) / size))]
    for machine in machines:
        free = [pack for pack in dealt if len(pack) < size]
        min(free, key=lambda pack: math.fsum(other.memory_bytes for other in pack)).append(machine)
    return dealt


def _filled(machines: Pack, size: int) -> list[Pack]:
    return [machines[first : first + size] for first in range(0, len(machines), size)]
