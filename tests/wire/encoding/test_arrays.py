import runpy
import sys
from types import GenericAlias
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta
from numpy.typing import NDArray

from fedlearn.wire import connection, messages
from fedlearn.wire.encoding.arrays import twin_of
from fedlearn.wire.encoding.codec import decode, encode
from fedlearn.wire.errors import RemoteProtocolError

Floats = NDArray[np.float32]
Bytes = NDArray[np.int8]
EMPTY = np.zeros(0, np.int8)


class Inner(msgspec.Struct, frozen=True, array_like=True, eq=False):
    numbers: Bytes
    name: str


class Everything(msgspec.Struct, frozen=True, array_like=True, tag=9, eq=False):
    one: Floats
    inner: Inner
    named: Annotated[dict[str, Floats], Meta(max_length=2)]
    listed: list[Inner]
    perhaps: Floats | None
    plain: tuple[int, str]
    last: Inner = Inner(EMPTY, "default")


def everything(perhaps: Floats | None = None) -> Everything:
    ones = np.ones(3, np.float32)
    inner = Inner(np.array([-1, 1], np.int8), "inner")
    return Everything(ones, inner, {"a": ones * 2}, [inner, inner], perhaps, (1, "x"), inner)


@pytest.mark.parametrize("perhaps", [None, np.arange(4, dtype=np.float32)])
def test_arrays_come_back_wherever_they_stand(perhaps: Floats | None) -> None:
    came = decode(encode(everything(perhaps)), Everything)
    assert type(came) is Everything
    assert came.one.tolist() == [1, 1, 1]
    assert [type(inner) for inner in (came.inner, *came.listed, came.last)] == [Inner] * 4
    assert [inner.numbers.tolist() for inner in came.listed] == [[-1, 1]] * 2
    assert came.named["a"].dtype == np.float32
    assert came.named["a"].tolist() == [2, 2, 2]
    assert (came.perhaps is None) == (perhaps is None)
    if came.perhaps is not None and perhaps is not None:
        assert came.perhaps.tolist() == perhaps.tolist()
    assert came.plain == (1, "x")


def test_a_field_that_is_absent_has_its_default() -> None:
    fields = msgspec.msgpack.decode(encode(everything()))
    came = decode(msgspec.msgpack.encode(fields[:-1]), Everything)
    assert came.last.name == "default"
    assert came.last.numbers is EMPTY


def test_limits_beside_an_array_hold() -> None:
    many = msgspec.structs.replace(everything(), named={str(n): np.ones(1, np.float32) for n in range(3)})
    with pytest.raises(RemoteProtocolError, match="length <= 2"):
        decode(encode(many), Everything)


def test_a_type_without_arrays_is_its_own_twin() -> None:
    class Plain(msgspec.Struct, array_like=True):
        names: dict[str, tuple[int, ...]]

    assert twin_of(Plain) == (Plain, None)


if sys.version_info >= (3, 12):
    from typing import TypeAliasType
else:

    class TypeAliasType:
        """An alias as Python has them from 3.12 on, and as numpy's NDArray is one there."""

        def __init__(self, name: str, value: object, *, type_params: tuple[TypeVar, ...] = ()) -> None:
            self.__name__ = name
            self.__value__ = value
            self.__type_params__ = type_params

        def __getitem__(self, given: object) -> GenericAlias:
            return GenericAlias(self, given)  # type: ignore[arg-type]


TWO = np.ones(2, np.float32)
Number = TypeVar("Number", bound=np.generic)
Key = TypeVar("Key")
ALIAS: Any = TypeAliasType("ALIAS", np.ndarray[Any, np.dtype[Number]], type_params=(Number,))  # type: ignore[valid-type]
ALIAS_OF_ALIAS: Any = TypeAliasType("ALIAS_OF_ALIAS", ALIAS[np.float32])
TURNED: Any = TypeAliasType("TURNED", dict[Key, ALIAS[Number]], type_params=(Number, Key))  # type: ignore[valid-type]
ALIAS_OF_UNION: Any = TypeAliasType("ALIAS_OF_UNION", Floats | None)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (ALIAS[np.float32], TWO),
        (ALIAS_OF_ALIAS, TWO),
        (TURNED[np.float32, str], {"a": TWO}),
        (ALIAS_OF_UNION, TWO),
        (list[ALIAS_OF_ALIAS], [TWO]),
        (Annotated[ALIAS_OF_ALIAS, "named"], TWO),
        (np.ndarray[tuple[int], np.dtype[np.float32]], TWO),
    ],
    ids=["parameter", "alias of an alias", "parameters in another order", "union", "list", "annotated", "no alias"],
)
def test_an_array_is_seen_behind_any_alias(annotation: Any, value: object) -> None:  # noqa: ANN401 (a type)
    struct = msgspec.defstruct("Struct", [("field", annotation)], array_like=True)
    sent = encode(struct(value))
    assert encode(decode(sent, struct)) == sent


class Custom:
    pass


@pytest.mark.parametrize("annotation", [Any, object, Custom, np.ndarray, dict, TypeAliasType("X", Custom), Number])
def test_a_type_that_the_decoder_does_not_know_is_refused_when_it_is_looked_at(annotation: Any) -> None:  # noqa: ANN401
    with pytest.raises(TypeError, match="twin_of knows no more"):
        twin_of(msgspec.defstruct("Struct", [("field", list[annotation])], array_like=True))


def test_a_message_that_cannot_travel_is_refused_at_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = msgspec.defstruct("Unknown", [("field", Custom)], array_like=True, tag=99)
    monkeypatch.setattr(messages, "FromServer", messages.FromServer | unknown)
    with pytest.raises(TypeError, match="twin_of knows no more"):
        runpy.run_path(connection.__file__)


@pytest.mark.parametrize("annotation", [tuple[Floats, int], set[Inner]])
def test_an_array_where_nobody_looks_for_one_is_our_own_fault(annotation: Any) -> None:  # noqa: ANN401 (a type)
    with pytest.raises(TypeError, match="expected arrays in structs, lists"):
        twin_of(annotation)


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=9)
    | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.sampled_from([1, 2, 3, 4, 5, 7]), st.data())
def test_a_field_of_any_other_kind_is_refused(number: int, data: st.DataObject) -> None:
    fields = msgspec.msgpack.decode(encode(everything()))
    fields[number] = junk = data.draw(JUNK)
    try:
        came = decode(msgspec.msgpack.encode(fields), Everything)
    except RemoteProtocolError:
        return
    assert junk in ({}, [], None), f"{came} was made of {junk!r}"
