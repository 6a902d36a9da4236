"""Checks of a graph that need neither a run nor memory for its tensors."""

from collections.abc import Iterator

from msgspec import Struct

from fedlearn.graphs.graph import MAX_NAME_PARTS, Argument, Call, Graph, GraphError, GraphTooLargeError, Value
from fedlearn.graphs.operators import OPERATORS, Operator

_GIB = 2**30
_MAX_QUOTED = 80
"""The most characters of a peer's text that an error repeats."""


class Limits(Struct, frozen=True):
    """What a graph may ask for."""

    max_bytes: int = 16 * _GIB
    """The most bytes in use at one time while one member runs: rows, tensors and results."""
    max_tensors: int = 10_000
    """The largest number of inputs, learned and frozen tensors, and constants together."""
    max_calls: int = 10_000
    """The largest number of calls, each of which takes 0.15 ms to measure, once for each volunteer that joins."""
    max_kernels: int = 100_000
    """The largest number of operations inside all calls; a recurrent layer has a dozen per token, of 0.09 ms each."""


DEFAULT_LIMITS = Limits()


def check(graph: Graph, limits: Limits = DEFAULT_LIMITS) -> None:
    """Accepts a graph whose names, operators and arguments are valid, and whose tensors are not too large.

    The graph does not say how large intermediate results are; whoever runs it must find that out first.

    Raises:
        GraphTooLargeError: its tensors take more memory than it is allowed.
        GraphError: the graph is malformed; the message says what was expected, what came, and where.
    """
    given = graph.given
    _check_counts(graph, len(given), limits)
    n_bytes = sum(array.n_bytes for array in given)
    if n_bytes > limits.max_bytes:
        largest = max(given, key=lambda array: array.n_bytes)
        raise GraphTooLargeError(
            f"graph: expected tensors of at most {in_words(limits.max_bytes)} together, got {in_words(n_bytes)}, "
            f"of which {_quoted(largest.name)} {list(largest.shape)} takes {in_words(largest.n_bytes)}; "
            "a volunteer with more memory may allow more"
        )
    for constant in graph.constants:
        if len(constant.data) != constant.array.n_bytes:
            raise GraphError(
                f"constant {_quoted(constant.array.name)}: expected {constant.array.n_bytes} bytes, "
                f"got {len(constant.data)}"
            )
    for array in given:
        if array.dtype == "complex64":
            raise GraphError(f"{_quoted(array.name)}: expected real numbers, got complex64; keep two real columns")
        if not array.n_bytes:
            raise GraphError(f"{_quoted(array.name)}: expected no empty dimension, got {list(array.shape)}")
        if array.name.count(".") >= MAX_NAME_PARTS:
            raise GraphError(f"{_quoted(array.name)}: expected at most {MAX_NAME_PARTS} parts in a name, got more")
    for array in graph.learned:
        if array.dtype != "float32":
            raise GraphError(f"learned tensor {_quoted(array.name)}: expected float32, got {array.dtype}")
    _check_flow(graph, [array.name for array in given])


def values_read(call: Call) -> Iterator[str]:
    """Names of the values that a call reads."""
    for argument in call.arguments:
        for item in argument if isinstance(argument, tuple) else (argument,):
            if isinstance(item, Value):
                yield item.name


def in_words(n_bytes: int) -> str:
    """A number of bytes as text for people."""
    return f"{n_bytes / _GIB:.3g} GiB" if n_bytes >= _GIB / 10 else f"{n_bytes} bytes"


def _check_counts(graph: Graph, n_tensors: int, limits: Limits) -> None:
    for what, got, limit in (
        ("tensors", n_tensors, limits.max_tensors),
        ("calls", len(graph.calls), limits.max_calls),
    ):
        if got > limit:
            raise GraphError(
                f"graph: expected at most {limit} {what}, got {got}; start the server with --share nothing"
            )
    if not graph.learned:
        raise GraphError("graph: expected at least one tensor to learn, got none")


def _check_flow(graph: Graph, given: list[str]) -> None:
    """Checks that every value is made once and before it is read, and that a learned tensor is read."""
    known: set[str] = set()
    for name in given:
        _add(known, name)
    read: set[str] = set()
    for number, call in enumerate(graph.calls):
        where = f"call {number} ({_quoted(call.operator)})"
        operator = _operator(call, where)
        _check_arguments(call, operator, where)
        for name in values_read(call):
            if name not in known:
                raise GraphError(f"{where}: expected arguments that are earlier values, got {_quoted(name)}")
            read.add(name)
        for name in call.results:
            _add(known, name)
    _check_results(graph)
    if read.isdisjoint(tensor.name for tensor in graph.learned):
        raise GraphError("graph: expected a call that reads a learned tensor, got none; the loss depends on none")


def _check_results(graph: Graph) -> None:
    results = graph.results
    given = {*results, *(array.name for array in graph.received)}
    for name in graph.outputs:
        if name not in given:
            raise GraphError(f"graph: expected the result of a call as its output, got {_quoted(name)}")
    if not graph.outputs or len(set(graph.outputs)) < len(graph.outputs):
        raise GraphError(f"graph: expected different outputs, got {_quoted(', '.join(graph.outputs))}")
    if graph.forms and len(graph.forms) != len(results):
        raise GraphError(f"graph: expected a form for each of {len(results)} results, got {len(graph.forms)}")


def _add(known: set[str], name: str) -> None:
    if name in known:
        raise GraphError(f"graph: expected names that differ, got {_quoted(name)} twice")
    known.add(name)


def _operator(call: Call, where: str) -> Operator:
    operator = OPERATORS.get(call.operator)
    if operator is None:
        raise GraphError(
            f"{where}: not an operator that volunteers run; "
            "update fedlearn if the server's is newer, or start the server with --share nothing"
        )
    return operator


def _check_arguments(call: Call, operator: Operator, where: str) -> None:
    if len(call.arguments) != len(operator.parameters):
        raise GraphError(f"{where}: expected {len(operator.parameters)} arguments, got {len(call.arguments)}")
    for parameter, argument in zip(operator.parameters, call.arguments, strict=True):
        if not parameter.kind.accepts(argument):
            raise GraphError(f"{where}: {parameter.name}: expected {parameter.kind.expected}, got {_quoted(argument)}")
    n_results = operator.n_results
    if n_results < 0:
        counted = call.arguments[operator.counted_by]
        n_results = len(counted) if isinstance(counted, tuple) else 0
    if len(call.results) != n_results:
        raise GraphError(f"{where}: expected {n_results} results, got {len(call.results)}")


def _quoted(argument: Argument) -> str:
    text = repr(argument)
    return text if len(text) <= _MAX_QUOTED else text[:_MAX_QUOTED] + "..."
