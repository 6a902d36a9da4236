"""Machines in a row, each with what lies between two places: an exact dynamic program over sets of machines.

A row is as slow as its slowest machine or line, since all of them work at the same time, on different members.
Machines are numbers, sets of them are bits, and ties go to the first found, so that everybody finds the same.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedlearn.graphs.planning.parts import Float64Array

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_CLOSE = 1e-9
"""The relative difference below which two rates count as the same but for rounding."""

Place = tuple[int, int, int]
"""A machine, and the numbers of the places that it works between."""


def bottlenecks(costs: Float64Array, lines: Float64Array) -> Float64Array:
    """The cost of the slowest, [sets, machines, places], for a row of exactly these machines up to a place.

    The second index is the machine that stands last. `costs` [machines, places, places] is that of a machine between
    two places, `lines` [machines, machines, places] that of the line from one to the next with a cut there. Infinite
    costs are impossible.
    """
    n, _, n_places = costs.shape
    best = np.full((2**n, n, n_places), np.inf)
    for machine in range(n):
        best[1 << machine, machine] = costs[machine, 0]
    sets, sizes = np.arange(2**n), _sizes(2**n)
    for size in range(1, n):
        for machine in range(n):
            before = sets[(sizes == size) & (sets >> machine & 1 == 0)]
            handed_on = np.maximum(best[before], lines[:, machine]).min(axis=1)
            reached = np.maximum(handed_on[:, :, None], costs[machine]).min(axis=1)
            best[before | 1 << machine, machine] = reached
    return best


def row_of(
    best: Float64Array, costs: Float64Array, lines: Float64Array, sent: Float64Array, members: int
) -> list[Place]:
    """A fastest row of exactly these machines, from the beginning to the end; of equal cuts where the least is sent."""
    row: list[Place] = []
    right = costs.shape[1] - 1
    machine = int(best[members, :, right].argmin())
    while True:
        members &= ~(1 << machine)
        if not members:
            return [(machine, 0, right), *row]
        handed_on = np.maximum(best[members], lines[:, machine])
        slowest = np.maximum(handed_on.min(axis=0), costs[machine, :, right])
        left = int(np.lexsort((sent, slowest))[0])
        row.insert(0, (machine, left, right))
        machine, right = int(handed_on[:, left].argmin()), left


def row_in_order(costs: Float64Array, sent: Float64Array) -> tuple[float, list[Place]]:
    """The row of all machines as they stand whose slowest is fastest, and its cost; of equal cuts the least is sent."""
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


def can_reach(is_possible: BoolArray) -> bool:
    """Whether some of the machines can stand in a row from the first place to the last.

    `is_possible` [machines, places, places] says what each can take; whoever can take a part can take any part of it.
    """
    n, _, n_places = is_possible.shape
    furthest = np.where(is_possible.any(axis=2), n_places - 1 - is_possible[:, :, ::-1].argmax(axis=2), 0).tolist()
    reached = [0] * 2**n
    for members in range(1, 2**n):
        rest = members
        while rest:
            bit = rest & -rest
            place = reached[members ^ bit]
            reached[members] = max(reached[members], place, furthest[bit.bit_length() - 1][place])
            rest ^= bit
    return bool(reached[-1] == n_places - 1)


def share_out(rates: Sequence[float]) -> list[int]:
    """Disjoint sets of machines whose rates add up to the most; `rates` has one for each set, 0 where it has no row.

    Ties go to fewer machines, then to those with lower numbers.
    """
    of_set, sizes = np.asarray(rates), _sizes(len(rates))
    best, n_used, chosen = np.zeros(len(rates)), np.zeros(len(rates), np.int64), np.zeros(len(rates), np.int64)
    for members in range(1, len(rates)):
        rest = members & members - 1
        crews = _subsets(rest, sizes) | members ^ rest
        crews = np.append(crews[of_set[crews] > 0.0], 0)  # last, that the machine with the lowest number is idle
        left = np.where(crews == 0, rest, members & ~crews)
        totals, used = of_set[crews] + best[left], sizes[crews] + n_used[left]
        used[totals < totals.max() * (1 - _CLOSE)] = len(rates)
        number = int(used.argmin())
        best[members], n_used[members], chosen[members] = totals[number], used[number], crews[number]
    sets, remaining = [], len(rates) - 1
    while remaining:
        if crew := int(chosen[remaining]):
            sets.append(crew)
        remaining &= ~crew if crew else remaining - 1
    return sets


def _subsets(members: int, sizes: IntArray) -> IntArray:
    """All subsets of a set, small ones first, then by their number."""
    subsets = np.zeros(1, np.int64)
    while members:
        bit = members & -members
        subsets = np.concatenate([subsets, subsets | bit])
        members ^= bit
    return subsets[np.lexsort((subsets, sizes[subsets]))]


def _sizes(n_sets: int) -> IntArray:
    """The number of machines in each set."""
    return np.array([number.bit_count() for number in range(n_sets)])
