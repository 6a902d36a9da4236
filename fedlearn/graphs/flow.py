"""The flow of values through a graph: where it may be cut, and which values would cross there."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import prod

from fedlearn.graphs.checks import values_read
from fedlearn.graphs.costs import makes_products
from fedlearn.graphs.graph import Call, Form, Graph, GraphError

MAX_REPEATED_BYTES = 2**22
"""The most bytes of a frozen tensor that several stages may hold for what they all compute again.

This is the size of a causal mask of 2048 tokens."""

_FLOAT32_BYTES = 4
_OTHER_FORMS = frozenset(
    ("contiguous.default", "expand.default", "permute.default", "reshape.default", "select.int", "slice.Tensor",
     "squeeze.default", "squeeze.dim", "squeeze.dims", "t.default", "to.dtype", "transpose.int", "unsqueeze.default")
)  # fmt: skip
"""Calls that give their argument in another form; applied to a learned tensor, they are a way of reading it."""


class Flow:
    """The values that cross each position of a graph; a cut at a position stands before the call there.

    Values of a member, which are float32 and depend on learned tensors and data, are handed on to the next stage.
    Values that are cheap and depend on no learned tensor, such as masks and positions, are computed again by each
    stage.
    """

    def __init__(self, graph: Graph) -> None:
        """Takes a checked graph.

        Raises:
            GraphError: the graph does not name the forms of its results, or has a learned tensor that no call reads.
        """
        results = graph.results
        read = {name for call in graph.calls for name in values_read(call)}
        if unread := [array.name for array in graph.learned if array.name not in read]:
            raise GraphError(
                f"learned tensor {unread[0]!r}: expected a call that reads it, got none, so that no part of a cut "
                "graph would hold it; leave it out with train="
            )
        if len(graph.forms) != len(results):
            raise GraphError("graph: expected the forms of its results, got none; export it again to cut it")
        self.graph = graph
        self.forms = dict(zip(results, graph.forms, strict=True))
        self.forms.update((array.name, Form(array.shape, array.dtype)) for array in graph.given)
        self._made_by = {array.name: -1 for array in graph.received}
        self._made_by.update((name, number) for number, call in enumerate(graph.calls) for name in call.results)
        self._find_repeated()
        self._last_read = dict.fromkeys(graph.outputs, len(graph.calls))
        for number in range(len(graph.calls) - 1, -1, -1):
            for name in values_read(graph.calls[number]):
                self._last_read.setdefault(name, number)
        crossing = [name for name in self._last_read if name in self._made_by and name not in self._repeated]
        self._sent_bytes = self._sums({name: self.float32_bytes([name]) for name in crossing})
        self._n_refused = self._sums({name: 1 for name in crossing if self._refusal_of(name)})

    def crossing(self, position: int) -> list[str]:
        """Names of the values that calls before the position make and later ones read, except those computed again."""
        return [
            name
            for name, made_by in self._made_by.items()
            if made_by < position <= self._last_read.get(name, -1) and name not in self._repeated
        ]

    def sent_bytes(self, position: int) -> int:
        """Bytes, as float32, that cross the position for one member; at the end, those of the graph's outputs."""
        return self._sent_bytes[position]

    def alive_bytes(self, position: int) -> int:
        """Bytes, as float32, of what crosses the position and of what the call there makes, for one member."""
        made = () if self._is_repeated(self.graph.calls[position]) else self.graph.calls[position].results
        return self._sent_bytes[position] + self.float32_bytes(made)

    def can_be_cut(self, position: int) -> bool:
        """Whether the graph can be cut at the position: some values cross there, and all of them may."""
        return self._sent_bytes[position] > 0 and not self._n_refused[position]

    def refusal(self, position: int) -> str:
        """The reason why a cut at the position is impossible; empty where it is possible."""
        if self.can_be_cut(position):
            return ""
        refusals = map(self._refusal_of, self.crossing(position))
        return next(filter(None, refusals), "nothing crosses it that a member has for itself")

    def reads_learned(self, call: Call) -> bool:
        """Whether a call computes with a learned tensor, and does not only give it in another form."""
        return not self._weights.isdisjoint(values_read(call)) and not self._is_repeated(call)

    def calls_between(self, start: int, stop: int) -> tuple[Call, ...]:
        """The calls of a stage in order: those at its positions, and earlier ones that it repeats."""
        calls = self.graph.calls
        wanted = {number for number in range(start, stop) if not self._is_repeated(calls[number])}
        names = [name for number in wanted for name in values_read(calls[number])]
        while names:
            name = names.pop()
            if name in self._repeated and self._made_by[name] not in wanted:
                wanted.add(self._made_by[name])
                names += values_read(calls[self._made_by[name]])
        return tuple(calls[number] for number in sorted(wanted))

    def float32_bytes(self, names: Iterable[str]) -> int:
        """Bytes that these values take as float32."""
        return _FLOAT32_BYTES * sum(prod(self.forms[name].shape) for name in names)

    def _find_repeated(self) -> None:
        graph = self.graph
        self._reached = {array.name for array in (*graph.learned, *graph.received)}
        self._weights = {array.name for array in graph.learned}
        cheap = {array.name for array in (*graph.inputs, *(constant.array for constant in graph.constants))}
        cheap.update(array.name for array in graph.frozen if array.n_bytes <= MAX_REPEATED_BYTES)
        self._repeated: set[str] = set()
        for call in graph.calls:
            read = set(values_read(call))
            if call.operator in _OTHER_FORMS and read <= self._weights:
                self._weights.update(call.results)
                self._reached.update(call.results)
                self._repeated.update(call.results)
            elif read & self._reached:
                self._reached.update(call.results)
            elif read <= cheap and not makes_products(call):
                cheap.update(call.results)
                self._repeated.update(call.results)

    def _is_repeated(self, call: Call) -> bool:
        return not self._repeated.isdisjoint(call.results)

    def _refusal_of(self, name: str) -> str:
        if name not in self._reached:
            return f"{name!r} would cross it, which is the same for all members and too costly to compute again"
        if self.forms[name].dtype != "float32":
            return f"{name!r} would cross it, which is {self.forms[name].dtype}; only float32 is handed on"
        return ""

    def _sums(self, amounts: dict[str, int]) -> Sequence[int]:
        """The sum of the amounts of all values that cross each position."""
        changes = [0] * (len(self.graph.calls) + 2)
        for name, amount in amounts.items():
            changes[self._made_by[name] + 1] += amount
            changes[self._last_read[name] + 1] -= amount
        return list(accumulate(changes))
