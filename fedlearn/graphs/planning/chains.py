"""Rows of machines, each with the pieces between two places: an exact dynamic program over places.

A row is as slow as its slowest machine or network line, since all work at the same time on different members.
Ties go to the first found, so that everyone finds the same row.
"""

import numpy as np

from fedlearn.graphs.planning.parts import Float64Array

Place = tuple[int, int, int]
"""A machine, and the numbers of the places that it works between."""


def row_in_order(costs: Float64Array, sent: Float64Array) -> tuple[float, list[Place]]:
    """The fastest row of all machines in their order, after its cost; among equal cuts, those that send the least."""
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
