"""Twins of the message types, for msgpack: in a twin an array is a struct `[dtype, [length], bytes]`.

Where msgspec's decoder does not know a field's type, it builds whatever came, nested lists by the million, before
anybody can refuse it. A twin has no field of an unknown type, so the decoder stops at the first wrong byte of what
should be an array. The arrays are views of the decoded bytes.
"""

from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
import numpy as np
from numpy.typing import NDArray

ARRAY_DTYPES = frozenset(["|i1", "|u1", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8"])

_PLAIN = frozenset([bool, int, float, str, bytes, NoneType, ...])
"""Types that the decoder knows, and the dots of a tuple of any length."""

Revive = Callable[[Any], Any]
"""Turns a value of a twin into the value that it stands for."""


class _Raw(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """An array as it travels."""

    dtype: Annotated[str, msgspec.Meta(max_length=3)]
    shape: tuple[int]
    data: bytes


def twin_of(annotation: Any) -> tuple[Any, Revive | None]:  # noqa: ANN401 (types are what it is about)
    """The type to decode in place of `annotation`, and what turns a value of it back; None where both are the same.

    Raises:
        TypeError: the annotation has a type that this module does not know, or an array where it does not look for one.
    """
    annotation = _spelled_out(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is np.ndarray:
        return _Raw, _array_of(np.dtype(get_args(arguments[1])[0]))
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return _twin_of_struct(annotation)
    if origin is Annotated:
        twin, revive = twin_of(annotation.__origin__)
        return (annotation if revive is None else Annotated[(twin, *annotation.__metadata__)]), revive
    if origin is Literal or annotation in _PLAIN:
        return annotation, None
    twins = [twin_of(argument) for argument in arguments]
    if origin in (tuple, list, dict, Union, UnionType) and all(revive is None for _, revive in twins):
        return annotation, None
    if origin in (list, dict):
        return origin[tuple(twin for twin, _ in twins)], _collection(origin, twins[-1][1])
    if origin in (Union, UnionType):
        return Union[tuple(twin for twin, _ in twins)], _alternative(twins)  # noqa: UP007 (made at run time)
    raise TypeError(
        f"{annotation}: expected arrays in structs, lists, values of dicts and unions, and plain types elsewhere; "
        "twin_of knows no more"
    )


def _spelled_out(annotation: Any) -> Any:  # noqa: ANN401
    """The annotation without the aliases it begins with: numpy's NDArray is one from numpy 2.5 on."""
    while hasattr(alias := get_origin(annotation) or annotation, "__value__"):
        given = dict(zip(alias.__type_params__, get_args(annotation), strict=False))
        annotation = alias.__value__
        if open_ones := getattr(annotation, "__parameters__", ()):
            annotation = annotation[tuple(given.get(parameter, parameter) for parameter in open_ones)]
    return annotation


def _array_of(dtype: np.dtype[Any]) -> Callable[[_Raw], NDArray[Any]]:
    empty = np.frombuffer(b"", dtype)

    def revive(raw: _Raw) -> NDArray[Any]:
        if raw.dtype != dtype.str:
            raise ValueError(f"array: expected dtype {dtype.str!r}, got {raw.dtype!r}")
        if raw.shape[0] * dtype.itemsize != len(raw.data):
            raise ValueError(f"array: expected {raw.shape[0]} x {dtype.itemsize} bytes, got {len(raw.data)} bytes")
        return np.frombuffer(raw.data, dtype) if raw.data else empty

    return revive


@cache
def _twin_of_struct(struct: type[msgspec.Struct]) -> tuple[type[msgspec.Struct], Revive | None]:
    fields = msgspec.structs.fields(struct)
    twins = [twin_of(field.type) for field in fields]
    changes = [(number, revive) for number, (_, revive) in enumerate(twins) if revive is not None]
    if not changes:
        return struct, None
    defined: list[Any] = [
        (field.name, twin) if field.required else (field.name, twin, field.default)
        for field, (twin, _) in zip(fields, twins, strict=True)
    ]
    config = struct.__struct_config__
    twin = msgspec.defstruct(
        f"_{struct.__name__}", defined, array_like=config.array_like, tag=config.tag, tag_field=config.tag_field
    )

    def revive(value: msgspec.Struct) -> msgspec.Struct:
        if type(value) is struct:
            return value  # the field's default, which no bytes made
        values = list(msgspec.structs.astuple(value))
        for number, change in changes:
            values[number] = change(values[number])
        return struct(*values)

    return twin, revive


def _collection(origin: type, revive: Revive | None) -> Revive:
    assert revive is not None, "an array can be no key"
    if origin is list:
        return lambda values: [revive(value) for value in values]
    return lambda values: {key: revive(value) for key, value in values.items()}


def _alternative(twins: list[tuple[Any, Revive | None]]) -> Revive:
    """Picks by the type of the decoded value: msgspec accepts only unions whose members differ in it."""
    by_type = {twin: revive for twin, revive in twins if revive is not None}

    def revive(value: object) -> object:
        found = by_type.get(type(value))
        return value if found is None else found(value)

    return revive
