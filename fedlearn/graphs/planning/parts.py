"""The costs of consecutive pieces that a machine might be given: memory, work, and bytes that cross their ends."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Self

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fedlearn.graphs.graph import Graph
from fedlearn.graphs.pieces import Piece, pieces

Float64Array = NDArray[np.float64]


class ModelCosts(Struct, frozen=True):
    """The model that is divided: its pieces in order, and the sizes of the tensors that they read."""

    pieces: Sequence[Piece]
    learned: Mapping[str, int]
    """Number of elements of each learned tensor, by name."""
    frozen: Mapping[str, int]
    """Bytes of each tensor that is not learned, by name."""

    @classmethod
    def of(cls, graph: Graph) -> Self:
        """The pieces and tensors of a checked graph."""
        learned = {array.name: array.n_bytes // 4 for array in graph.learned}
        return cls(pieces(graph), learned, {array.name: array.n_bytes for array in graph.frozen})


class Needs(Struct, frozen=True):
    """The memory that a machine needs for a part of the model."""

    parameter_bytes: int
    """Bytes for each parameter: its weight, the optimizer's state, and what a step and their arrival take."""
    members: int
    """Members that run at once, each with its activations and with what it computes from frozen tensors."""


class PartCosts(Struct, frozen=True, eq=False):
    """The costs between any two places where a cut may stand; the beginning and the end are places too."""

    places: tuple[int, ...]
    """The number of pieces before each place [places], ascending from 0."""
    work: Float64Array
    """Multiply-adds of a member before each place [places]."""
    sent: Float64Array
    """Bytes of a member that cross each place [places]; nothing crosses the beginning and the end."""
    need: Float64Array
    """Bytes of memory for the pieces between two places [places, places]; infinite where there are none."""


def parts_of(model: ModelCosts, needs: Needs, *, max_places: int) -> PartCosts:
    """The costs between at most `max_places` places.

    If there are more, each stretch of equal work and memory keeps the place that the fewest bytes cross.
    """
    work = [0.0, *accumulate(piece.multiply_adds for piece in model.pieces)]
    places = _places(model, work, max_places - 2)
    sent = [0 if place in (0, len(model.pieces)) else model.pieces[place - 1].sent_bytes for place in places]
    return PartCosts(
        places, np.array([work[place] for place in places]), np.array(sent, np.float64), _need(model, needs, places)
    )


def held_by(model: ModelCosts, first: int, end: int) -> tuple[str, ...]:
    """The tensors of pieces `first` to before `end`, each once, in the order in which they are first read."""
    return tuple(dict.fromkeys(name for piece in model.pieces[first:end] for name in piece.tensors))


def _places(model: ModelCosts, work: Sequence[float], max_cuts: int) -> tuple[int, ...]:
    n_pieces = len(model.pieces)
    if n_pieces - 1 <= max_cuts:
        return tuple(range(n_pieces + 1))
    held, seen = [0], set[str]()
    for piece in model.pieces:
        held.append(held[-1] + sum(model.learned.get(name, 0) for name in set(piece.tensors) - seen))
        seen.update(piece.tensors)
    best: dict[int, int] = {}
    for place in range(1, n_pieces):
        share = (work[place] / work[-1] + held[place] / held[-1]) / 2
        stretch = min(int(share * max_cuts), max_cuts - 1)
        other = best.get(stretch)
        if other is None or model.pieces[place - 1].sent_bytes < model.pieces[other - 1].sent_bytes:
            best[stretch] = place
    return (0, *best.values(), n_pieces)


def _need(model: ModelCosts, needs: Needs, places: Sequence[int]) -> Float64Array:
    alive = [
        max((model.pieces[number - 1].sent_bytes if number else 0) + piece.sent_bytes, piece.alive_bytes)
        for number, piece in enumerate(model.pieces)
    ]
    need = np.full((len(places), len(places)), np.inf)
    for left, first in enumerate(places):
        held, most_alive, n_bytes, until = set[str](), 0, 0, dict[int, int]()
        for number in range(first, len(model.pieces)):
            new = set(model.pieces[number].tensors) - held
            held |= new
            n_bytes += sum(needs.parameter_bytes * model.learned.get(name, 0) for name in new)
            n_bytes += sum(needs.members * model.frozen.get(name, 0) for name in new)
            most_alive = max(most_alive, alive[number])
            until[number + 1] = n_bytes + needs.members * most_alive
        need[left, left + 1 :] = [until[place] for place in places[left + 1 :]]
    return need
