"""A task's forward pass and loss as data: the arrays that it reads, its calls in order, and which value is the loss.

A graph works on the rows of one group. Values have names; a call names the values that it reads, all made earlier.
A stage of a model that was cut (`fedlearn.graphs.stages`) is a graph too: it is handed values by the stage before it,
and may give several.
"""

from collections.abc import Mapping
from math import prod
from typing import Annotated, Literal

from msgspec import Meta, Struct

MAX_NAME_LENGTH = 256
MAX_NAME_PARTS = 16
"""The most parts of a tensor's name, separated by points; each is a module within another."""
MAX_DIMENSIONS = 12
"""The most dimensions of a value; members add one, and torch allows 64."""

DtypeName = Literal[
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64"
]  # fmt: skip

ITEM_BYTES: Mapping[DtypeName, int] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1, "complex64": 8,
}  # fmt: skip
"""Bytes of one element, by dtype."""

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
Shape = Annotated[tuple[Annotated[int, Meta(ge=0, le=2**48)], ...], Meta(max_length=MAX_DIMENSIONS)]


class GraphError(ValueError):
    """A graph that cannot be made, is not well formed, or asks for more than it is allowed."""


class GraphTooLargeError(GraphError):
    """A graph that asks for more memory than allowed; a part of it may fit, or the whole graph on another machine."""


class ArraySpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Name and form of an array that a graph is given."""

    name: Name
    shape: Shape
    dtype: DtypeName = "float32"

    @property
    def n_bytes(self) -> int:
        return prod(self.shape) * ITEM_BYTES[self.dtype]


class Constant(Struct, frozen=True, forbid_unknown_fields=True):
    """A small array that is part of the graph."""

    array: ArraySpec
    data: bytes
    """Elements in row-major order, little-endian."""


class Value(Struct, frozen=True, forbid_unknown_fields=True, tag="value", tag_field="is"):
    """An argument that is an earlier value."""

    name: Name


class Dtype(Struct, frozen=True, forbid_unknown_fields=True, tag="dtype", tag_field="is"):
    """An argument that is a dtype."""

    name: DtypeName


class NonFinite(Struct, frozen=True, forbid_unknown_fields=True, tag="float", tag_field="is"):
    """A number that JSON can't express, such as infinity."""

    name: Literal["inf", "-inf", "nan"]


Item = Value | NonFinite | None | bool | int | float
Argument = Value | Dtype | NonFinite | None | bool | int | float | str | tuple[Item, ...]


class Call(Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """One call of an operator of the table."""

    results: tuple[Name, ...]
    operator: Name
    arguments: tuple[Argument, ...]
    """The arguments, one for each parameter of the operator in the table, in its order."""


class Form(Struct, frozen=True, array_like=True):
    """The shape and dtype of a result."""

    shape: Shape
    dtype: DtypeName

    @property
    def n_bytes(self) -> int:
        return prod(self.shape) * ITEM_BYTES[self.dtype]


class Graph(
    Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="fedlearn-graph-2", tag_field="format"
):
    """The loss of one group's rows as a function of rows and tensors."""

    inputs: tuple[ArraySpec, ...]
    """The columns of the rows, [batch_size, ...] each."""
    learned: tuple[ArraySpec, ...]
    """The learned tensors in the order of the flat weights; all are float32."""
    frozen: tuple[ArraySpec, ...]
    """Tensors that are not learned and are too large to be constants; they travel, or are compared, separately."""
    constants: tuple[Constant, ...]
    calls: tuple[Call, ...]
    outputs: tuple[Name, ...]
    """Names of the results: the loss of a whole model (one number, lower is better), or what a stage hands on."""
    received: tuple[ArraySpec, ...] = ()
    """The values that the stage before hands on; each member has its own."""
    forms: tuple[Form, ...] = ()
    """Forms of the results of all calls, in order, for one member; without them a graph can be run, but not cut."""

    @property
    def results(self) -> list[str]:
        """Names of the results of all calls, in order."""
        return [name for call in self.calls for name in call.results]

    @property
    def given(self) -> tuple[ArraySpec, ...]:
        """All arrays that exist before the first call."""
        constants = (constant.array for constant in self.constants)
        return (*self.inputs, *self.learned, *self.frozen, *constants, *self.received)
