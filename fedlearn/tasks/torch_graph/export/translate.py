"""Translates the calls of an exported program to calls of the table."""

import operator
from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from typing import Any, Literal

import torch
from torch import fx

from fedlearn.graphs.checks import values_read
from fedlearn.graphs.graph import Argument, Call, Dtype, GraphError, NonFinite, Value
from fedlearn.graphs.operators import OPERATORS
from fedlearn.tasks.torch_graph.arrays import NAMES
from fedlearn.tasks.torch_graph.export.refusals import REMEDY, line_of, outside_the_table
from fedlearn.tasks.torch_graph.export.rewrites import Replacement, replacements_of

_IDENTITIES = ("alias.default", "lift_fresh_copy.default", "lift_fresh.default")
_ASSERTIONS = ("_assert_tensor_metadata.default",)


class Translation:
    """The translation of an exported graph; `value_of` names the values of placeholders, some of them are `learned`."""

    def __init__(self, graph: fx.Graph, value_of: Mapping[str, str], learned: Collection[str]) -> None:
        self._graph, self._value_of, self._learned = graph, dict(value_of), {*learned}
        self._taken = set(self._value_of.values())
        self._parts_of: dict[str, tuple[str, ...]] = {}
        self._calls: list[Call] = []

    def calls(self) -> tuple[tuple[Call, ...], str]:
        """All calls that the loss needs, in order, and the name of the loss.

        Raises:
            GraphError: an operator is not in the table, or has an argument that the table lacks.
        """
        output = ""
        for node in self._graph.nodes:
            if node.op == "output":
                output = self._value(node.args[0][0]).name
            elif node.op == "call_function":
                self._translate(node)
            elif node.op != "placeholder":
                raise outside_the_table(node)
        return needed_for(output, self._calls), output

    def _translate(self, node: fx.Node) -> None:
        if node.target is operator.getitem:
            source, index = node.args
            assert isinstance(source, fx.Node)
            assert isinstance(index, int)
            parts = self._parts_of[source.name]
            if index >= len(parts):
                raise outside_the_table(source)
            self._value_of[node.name] = parts[index]
            return
        name = str(node.target).removeprefix("aten.")
        if name in _ASSERTIONS:
            return
        if name in _IDENTITIES or (name == "detach.default" and not self._is_learned(node.args[0])):
            self._value_of[node.name] = self._value(node.args[0]).name
            return
        self._call(node, replacements_of(node))

    def _call(self, node: fx.Node, replacements: list[Replacement]) -> None:
        """Adds the calls that replace a node; their results are the node's results."""
        results: list[str] = []
        for replacement in replacements:
            table = OPERATORS[replacement.operator]
            n_results = table.n_results
            if n_results < 0:
                n_results = len(replacement.arguments[table.parameters[table.counted_by].name])
            names = [self._fresh(node.name) for _ in range(n_results)]
            call = Call(tuple(names), replacement.operator, self._arguments(node, replacement))
            if replacement.operator != "detach.default" and not self._learned.isdisjoint(values_read(call)):
                self._learned.update(names)
            self._calls.append(call)
            results += names
        if not replacements:
            results = [self._value(node.args[0]).name]
        self._parts_of[node.name] = tuple(results)
        if not isinstance(node.meta.get("val"), list | tuple):
            (self._value_of[node.name],) = results

    def _arguments(self, node: fx.Node, replacement: Replacement) -> tuple[Argument, ...]:
        arguments = []
        for parameter in OPERATORS[replacement.operator].parameters:
            argument = self._argument(replacement.arguments[parameter.name])
            if parameter.kind.base == "Float" and isinstance(argument, int):
                argument = float(argument)
            if not parameter.kind.accepts(argument):
                raise GraphError(
                    f"{replacement.operator}{line_of(node)}: {parameter.name}: "
                    f"expected {parameter.kind.expected}, got {replacement.arguments[parameter.name]}; {REMEDY}"
                )
            arguments.append(argument)
        return tuple(arguments)

    def _argument(self, value: Any) -> Any:  # noqa: ANN401 (whatever an operator takes)
        match value:
            case fx.Node():
                return self._value(value)
            case list() | tuple():
                return tuple(self._argument(item) for item in value)
            case float() if not isfinite(value):
                return NonFinite(_name_of_non_finite(value))
            case torch.dtype():
                return Dtype(NAMES[value]) if value in NAMES else str(value)
        return value

    def _is_learned(self, node: object) -> bool:
        """Whether a value has a gradient by what is learned, so far as is known."""
        return self._value(node).name in self._learned

    def _value(self, node: object) -> Value:
        assert isinstance(node, fx.Node)
        return Value(self._value_of[node.name])

    def _fresh(self, wanted: str) -> str:
        name, number = wanted, 0
        while name in self._taken:
            number += 1
            name = f"{wanted}.{number}"
        self._taken.add(name)
        return name


def needed_for(output: str, calls: Sequence[Call]) -> tuple[Call, ...]:
    """The calls without those whose results nothing uses."""
    read, kept = {output}, []
    for call in reversed(calls):
        if not read.isdisjoint(call.results):
            read.update(values_read(call))
            kept.append(call)
    return tuple(reversed(kept))


def _name_of_non_finite(value: float) -> Literal["inf", "-inf", "nan"]:
    if value != value:
        return "nan"
    return "inf" if value > 0 else "-inf"
