"""Pieces of a graph between the places where it may be cut, and their costs, from which stages are planned."""

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from fedlearn.graphs.checks import values_read
from fedlearn.graphs.costs import multiply_adds
from fedlearn.graphs.flow import Flow
from fedlearn.graphs.graph import Graph, GraphError
from fedlearn.graphs.stages import Stage, cut


class Piece(Struct, frozen=True):
    """One call, or consecutive calls that can't be separated; a cut may stand after it."""

    calls: range
    """Positions of the piece among the graph's calls."""
    tensors: tuple[str, ...]
    """Learned and frozen tensors that the piece reads; one that several pieces read, such as a tied one, is in each."""
    multiply_adds: float
    """Multiply-adds for one member on the rows of one group."""
    sent_bytes: int
    """Bytes, as float32, that cross a cut right after this piece for one member; those of the loss for the last
    piece."""
    alive_bytes: int
    """The most bytes, as float32, that are alive at one time inside the piece for one member."""


def pieces(graph: Graph) -> tuple[Piece, ...]:
    """The pieces of a checked graph, each with at least one learned tensor.

    Between two calls that read learned tensors there is one place for a cut at most: where the fewest bytes cross.

    Raises:
        GraphError: the graph does not name the forms of its results.
    """
    flow = Flow(graph)
    shapes = {name: form.shape for name, form in flow.forms.items()}
    costs = [multiply_adds(call, shapes) for call in graph.calls]
    edges = [0, *_places(flow), len(graph.calls)]
    return tuple(_piece(flow, range(left, right), costs) for left, right in pairwise(edges))


def stages_of(graph: Graph, cuts: Sequence[int]) -> tuple[Stage, ...]:
    """The stages of a checked graph with a cut after so many pieces, for each of the ascending `cuts`.

    Raises:
        GraphError: the cuts are out of order, or there are fewer pieces.
    """
    places = _places(Flow(graph))
    if list(cuts) != sorted(set(cuts)) or not all(0 < number <= len(places) for number in cuts):
        raise GraphError(f"cuts: expected ascending numbers from 1 to {len(places)}, got {list(cuts)}")
    return cut(graph, [places[number - 1] for number in cuts])


def crossing_values(graph: Graph) -> frozenset[str]:
    """Names of the values that cross a place where a checked graph may be cut."""
    flow = Flow(graph)
    return frozenset(name for place in _places(flow) for name in flow.crossing(place))


def _places(flow: Flow) -> list[int]:
    """Positions of the calls before which a cut may stand."""
    readers = [number for number, call in enumerate(flow.graph.calls) if flow.reads_learned(call)]
    places: list[int] = []
    for reader, following in pairwise(readers):
        # If equally many bytes cross everywhere, calls without tensors stay with the call whose result they use.
        possible = [position for position in range(following, reader, -1) if flow.can_be_cut(position)]
        if possible:
            places.append(min(possible, key=flow.sent_bytes))
    return places


def _piece(flow: Flow, calls: range, costs: Sequence[float]) -> Piece:
    graph = flow.graph
    read = {name for call in flow.calls_between(calls.start, calls.stop) for name in values_read(call)}
    return Piece(
        calls,
        tuple(array.name for array in (*graph.learned, *graph.frozen) if array.name in read),
        sum(costs[calls.start : calls.stop]),
        flow.sent_bytes(calls.stop),
        max(map(flow.alive_bytes, calls)),
    )
