"""Cuts a graph into consecutive stages, each of which is a graph that is handed values and hands values on.

A value that a later stage needs is passed on by the stages between, so that each talks to its neighbours only. Columns
of the data are read by each stage itself and never sent. A tensor that calls of several stages read, such as a tied
head, is in each of them. `fedlearn.graphs.flow` decides which values cross a cut.
"""

from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from fedlearn.graphs.checks import values_read
from fedlearn.graphs.flow import Flow
from fedlearn.graphs.graph import ArraySpec, Graph, GraphError

Stage = Graph
"""A graph that may receive values and may give several."""


def cut(graph: Graph, positions: Sequence[int]) -> tuple[Stage, ...]:
    """The stages of a checked graph, with a cut before the call at each position.

    Raises:
        GraphError: positions are out of order or out of range, a value crosses a cut that cannot, or a stage learns
            nothing.
    """
    flow, n_calls = Flow(graph), len(graph.calls)
    edges = [0, *positions, n_calls]
    if any(left >= right for left, right in pairwise(edges)):
        raise GraphError(f"cuts: expected ascending positions from 1 to {n_calls - 1}, got {list(positions)}")
    for position in positions:
        if why := flow.refusal(position):
            raise GraphError(
                f"cut before call {position} ({graph.calls[position].operator}): expected a place where the model can "
                f"be cut, but {why}; cut where a piece of the model ends"
            )
    return tuple(_stage(flow, left, right) for left, right in pairwise(edges))


def _stage(flow: Flow, start: int, stop: int) -> Stage:
    graph, calls = flow.graph, flow.calls_between(start, stop)
    read = {name for call in calls for name in values_read(call)}
    learned = tuple(array for array in graph.learned if array.name in read)
    if not learned:
        raise GraphError(f"calls {start} to {stop}: expected a stage that learns a tensor, got none; cut elsewhere")
    received = [ArraySpec(name, flow.forms[name].shape) for name in flow.crossing(start)] if start else graph.received
    return replace(
        graph,
        inputs=tuple(array for array in graph.inputs if array.name in read),
        learned=learned,
        frozen=tuple(array for array in graph.frozen if array.name in read),
        constants=tuple(constant for constant in graph.constants if constant.array.name in read),
        calls=calls,
        outputs=graph.outputs if stop == len(graph.calls) else tuple(flow.crossing(stop)),
        received=tuple(received),
        forms=tuple(flow.forms[name] for call in calls for name in call.results),
    )
