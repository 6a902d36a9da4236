"""A task's forward and loss as data: what it reads, the calls in order, and which value is the loss.

Everything is for the rows of one group. Values have names; a call names the values that it reads, all of them earlier.
A stage of a model that was cut (`fedlearn.graphs.stages`) is a graph too: it is handed values by the stage before it,
and may give several.
"""

from collections.abc import Mapping
from math import prod
from typing import Annotated, Literal

from msgspec import Meta, Struct

MAX_NAME_LENGTH = 256
MAX_NAME_PARTS = 16
"""The most parts of a tensor's name, between points: each is a module within another."""
MAX_DIMENSIONS = 12
"""The most dimensions of a value. Members add one, and torch can have 64."""

DtypeName = Literal[
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64"
]  # fmt: skip

ITEM_BYTES: Mapping[DtypeName, int] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1, "complex64": 8,
}  # fmt: skip
"""Bytes of one element."""

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
Shape = Annotated[tuple[Annotated[int, Meta(ge=0, le=2**48)], ...], Meta(max_length=MAX_DIMENSIONS)]


class GraphError(ValueError):
    """A graph that cannot be made, is not well formed, or asks for more than it is allowed."""


class GraphTooLargeError(GraphError):
    """A graph that asks for more memory than it is allowed: a part of it may fit, or the whole on another machine."""


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
    """A number that JSON has no word for."""

    name: Literal["inf", "-inf", "nan"]


Item = Value | NonFinite | None | bool | int | float
Argument = Value | Dtype | NonFinite | None | bool | int | float | str | tuple[Item, ...]


class Call(Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """One call of an operator of the table."""

    results: tuple[Name, ...]
    operator: Name
    arguments: tuple[Argument, ...]
    """One for each parameter that the table has, in its order."""


class Form(Struct, frozen=True, array_like=True):
    """Shape and dtype of a result."""

    shape: Shape
    dtype: DtypeName

    @property
    def n_bytes(self) -> int:
        return prod(self.shape) * ITEM_BYTES[self.dtype]


class Graph(
    Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="fedlearn-graph-2", tag_field="format"
):
    """Loss of the rows of one group, as a function of rows and tensors."""

    inputs: tuple[ArraySpec, ...]
    """Columns of the rows, [batch_size, ...] each."""
    learned: tuple[ArraySpec, ...]
    """Tensors in the order in which they lie in the flat weights; all of them float32."""
    frozen: tuple[ArraySpec, ...]
    """Tensors that are not learned, too large to be constants; they travel or are compared by themselves."""
    constants: tuple[Constant, ...]
    calls: tuple[Call, ...]
    outputs: tuple[Name, ...]
    """Of a whole model the loss alone: one number, lower is better. Of a stage, what it hands to the next."""
    received: tuple[ArraySpec, ...] = ()
    """What the stage before hands on; each member has its own."""
    forms: tuple[Form, ...] = ()
    """Of the results of all calls, in order, for one member. A graph can be run without, but not cut."""

    @property
    def given(self) -> tuple[ArraySpec, ...]:
        """All arrays that calls may read before any call is made."""
        constants = (constant.array for constant in self.constants)
        return (*self.inputs, *self.learned, *self.frozen, *constants, *self.received)
