"""The calls of a graph, prepared so that they run fast."""

from collections.abc import Sequence
from math import inf, nan
from typing import Any, NamedTuple

import torch
from blake3 import blake3
from msgspec import Struct
from torch import Tensor

from fedlearn.graphs.checks import values_read
from fedlearn.graphs.graph import Argument, Call, Dtype, Form, Graph, NonFinite, Value
from fedlearn.graphs.operators import DRAWS, OPERATORS
from fedlearn.tasks.torch.dropout import dropout_mask
from fedlearn.tasks.torch_graph.arrays import DTYPES
from fedlearn.tasks.torch_graph.functions import FUNCTIONS, SOURCES, Function

Values = dict[str, Tensor]

_NON_FINITE = {"inf": inf, "-inf": -inf, "nan": nan}


class PreparedCall(Struct, frozen=True, eq=False):
    """One prepared call; small models wait for Python more than for arithmetic."""

    call: Call
    function: Function
    arguments: tuple[Any, ...]
    """The arguments as torch takes them, with gaps for values."""
    values: tuple[tuple[int, str], ...]
    """The positions of arguments that are values, each with the value's name."""
    lists: tuple[tuple[int, tuple[str | None, ...]], ...]
    """The positions of arguments that are lists of values, each with the values' names."""
    last_read: tuple[str, ...]
    """Names of values that no later call reads."""

    def given(self, known: Values) -> list[Any]:
        """All arguments of the call, with the values filled in."""
        arguments = list(self.arguments)
        for place, name in self.values:
            arguments[place] = known[name]
        for place, names in self.lists:
            arguments[place] = [None if name is None else known[name] for name in names]
        return arguments

    @property
    def draws(self) -> bool:
        """Whether the call draws random numbers."""
        return self.call.operator in DRAWS

    def drawn(self, form: Form, seed: int) -> Tensor:
        """The random numbers that the call, whose result has this form, draws for the group with this seed.

        They depend on nothing else, so the seats of a crew draw those of the whole graph.
        """
        own_seed = int.from_bytes(blake3(f"{seed} {self.call.results[0]}".encode()).digest(8), "little")
        if self.call.operator not in SOURCES:
            return dropout_mask(form.shape, 1 - self.arguments[-1], own_seed)
        generator = torch.Generator().manual_seed(own_seed)
        numbers: Tensor = self.function(*self.arguments, device=generator.device, generator=generator)
        return numbers

    def run(self, known: Values, device: torch.device) -> Sequence[Tensor]:
        """Gives the results, adds them to `known`, and removes from `known` what no later call reads.

        Where `known` has random numbers under the name of a call's result, the call draws none.
        """
        arguments = self.given(known)
        drawn = known.get(self.call.results[0]) if self.draws else None
        if drawn is not None:
            results: Any = drawn if self.call.operator in SOURCES else self.function(*arguments, drawn)
        elif self.call.operator in SOURCES:
            results = self.function(*arguments, device=device)
        else:
            results = self.function(*arguments)
        made: Sequence[Tensor] = (results,) if isinstance(results, Tensor) else results
        for name, result in zip(self.call.results, made, strict=True):
            known[name] = result
        for name in self.last_read:
            del known[name]
        return made


class CallSequence(NamedTuple):
    """All calls of a graph in an order in which they can be made."""

    once: list[PreparedCall]
    """Calls that depend on nothing learned, received or drawn and on no row, such as masks; their results are kept."""
    each_time: list[PreparedCall]


def plan(graph: Graph) -> CallSequence:
    """The calls of a checked graph."""
    moving = {array.name for array in (*graph.inputs, *graph.learned, *graph.received)}
    once: list[Call] = []
    each_time: list[Call] = []
    for call in graph.calls:
        if moving.isdisjoint(values_read(call)) and call.operator not in DRAWS:
            once.append(call)
        else:
            moving.update(call.results)
            each_time.append(call)
    kept = {array.name for array in graph.given} | set(graph.outputs)
    kept.update(name for call in each_time for name in values_read(call) if name not in moving)
    return CallSequence(_steps(once, kept), _steps(each_time, kept))


def _steps(calls: list[Call], kept: set[str]) -> list[PreparedCall]:
    needed = set(kept)
    steps: list[PreparedCall] = []
    for call in reversed(calls):
        # A result that nobody reads is dropped as soon as it is there.
        last = dict.fromkeys(name for name in (*values_read(call), *call.results) if name not in needed)
        needed.update(last)
        steps.append(_step(call, tuple(last)))
    return steps[::-1]


def _step(call: Call, last_read: tuple[str, ...]) -> PreparedCall:
    values: list[tuple[int, str]] = []
    lists: list[tuple[int, tuple[str | None, ...]]] = []
    for place, (parameter, argument) in enumerate(
        zip(OPERATORS[call.operator].parameters, call.arguments, strict=True)
    ):
        if isinstance(argument, Value):
            values.append((place, argument.name))
        elif parameter.kind.base == "Tensor" and isinstance(argument, tuple):
            names = (item.name if isinstance(item, Value) else None for item in argument)
            lists.append((place, tuple(names)))
    arguments = tuple(map(_prepared, call.arguments))
    return PreparedCall(call, FUNCTIONS[call.operator], arguments, tuple(values), tuple(lists), last_read)


def _prepared(argument: Argument) -> Any:  # noqa: ANN401 (whatever an operator takes)
    match argument:
        case tuple():
            return [_prepared(item) for item in argument]
        case Dtype():
            return DTYPES[argument.name]
        case NonFinite():
            return _NON_FINITE[argument.name]
    return argument
