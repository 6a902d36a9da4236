import tracemalloc
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlearn.graphs import codec
from fedlearn.graphs.codec import decode, encode
from fedlearn.graphs.graph import Argument, Call, Dtype, Graph, GraphError, NonFinite, Value


def with_text(text: bytes) -> bytes:
    return zlib.compress(text)


def with_change(graph: Graph, **changes: object) -> bytes:
    fields = msgspec.json.decode(msgspec.json.encode(graph))
    return with_text(msgspec.json.encode({**fields, **changes}))


def test_a_graph_comes_back_equal(graph: Graph) -> None:
    assert decode(encode(graph)) == graph


@pytest.mark.parametrize(
    "argument",
    [
        None, True, 0, 1, 1.0, -0.0, 1e-05, 2**63 - 1, -(2**63), "tanh", (), (1, 2.5, None), Value("y"), Dtype("bool"),
        NonFinite("-inf"), NonFinite("nan"), (Value("y"), None, Value("x")), (1.0, 1, True),
    ],
)  # fmt: skip
def test_an_argument_keeps_its_value_and_type(graph: Graph, argument: Argument) -> None:
    changed = msgspec.structs.replace(graph, calls=(Call(("y",), "add.Tensor", (argument,)),))
    (call,) = decode(encode(changed)).calls
    assert repr(call.arguments) == repr((argument,))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_float_comes_back_to_the_bit(number: float) -> None:
    graph = Graph((), (), (), (), (Call(("y",), "fill.Scalar", (number,)),), ("y",))
    (call,) = decode(encode(graph)).calls
    (got,) = call.arguments
    assert isinstance(got, float)
    assert got.hex() == number.hex()


def test_a_graph_that_could_not_be_decoded_is_not_encoded(graph: Graph) -> None:
    calls = graph.calls * (codec.MAX_TEXT_BYTES // 100)
    with pytest.raises(GraphError, match="--share nothing"):
        encode(msgspec.structs.replace(graph, calls=calls))


def test_more_bytes_than_a_volunteer_takes_are_not_sent(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(encode(graph))
    monkeypatch.setattr(codec, "MAX_ENCODED_BYTES", size)
    encode(graph)
    monkeypatch.setattr(codec, "MAX_ENCODED_BYTES", size - 1)
    with pytest.raises(GraphError, match=f"and {size - 1} compressed, got"):
        encode(graph)


def test_a_bomb_is_refused_before_it_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_TEXT_BYTES", 1000)
    bomb = zlib.compress(bytes(10**7))
    tracemalloc.start()
    with pytest.raises(GraphError, match="at most 1000 bytes of JSON"):
        decode(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10**5


def test_a_byte_of_text_too_many_is_refused() -> None:
    with pytest.raises(GraphError, match=r"at most \d+ bytes of JSON"):
        decode(zlib.compress(b" " * (codec.MAX_TEXT_BYTES + 1)))


def test_as_much_text_as_allowed_is_unpacked(graph: Graph) -> None:
    text = msgspec.json.encode(graph)
    assert decode(with_text(text + b" " * (codec.MAX_TEXT_BYTES - len(text)))) == graph


def test_too_many_bytes_are_not_looked_at() -> None:
    with pytest.raises(GraphError, match=f"at most {codec.MAX_ENCODED_BYTES} compressed bytes, got"):
        decode(bytes(codec.MAX_ENCODED_BYTES + 1))


@pytest.mark.parametrize("data", [b"", b"{}", b"\x78\x9c", b"PK\x03\x04"])
def test_what_is_no_zlib_stream_is_refused(data: bytes) -> None:
    with pytest.raises(GraphError, match="zlib"):
        decode(data)


def test_a_stream_that_ends_early_or_late_is_refused(graph: Graph) -> None:
    data = encode(graph)
    for wrong in (data[:-1], data + b"x", data + data):
        with pytest.raises(GraphError, match="one whole zlib stream"):
            decode(wrong)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b"{}", b"nul", b"\xff\xfe", b"[" * 200_000, b'{"format":' * 100_000,
        b'{"format":"fedlearn-graph-1","inputs":[]}',
    ],
)  # fmt: skip
def test_other_json_is_refused(text: bytes) -> None:
    with pytest.raises(GraphError, match="expected the JSON of a graph"):
        decode(with_text(text))


@pytest.mark.parametrize(
    "changes",
    [
        {"code": "import os"},
        {"outputs": [""]},
        {"outputs": ["x" * 257]},
        {"outputs": 3},
        {"forms": [[[-1], "float32"]]},
        {"forms": [[[1], "object"]]},
        {"inputs": [{"name": "x", "shape": [-1]}]},
        {"inputs": [{"name": "x", "shape": [2**48 + 1]}]},
        {"inputs": [{"name": "x", "shape": [1] * 13}]},
        {"inputs": [{"name": "x", "shape": [2.5]}]},
        {"inputs": [{"name": "x", "shape": [1], "dtype": "object"}]},
        {"inputs": [{"name": "x", "shape": [1], "path": "/etc"}]},
        {"constants": [{"array": {"name": "x", "shape": [1]}, "data": "no base64!"}]},
        {"calls": [["y", "add.Tensor", []]]},
        {"calls": [[["y"], "add.Tensor"]]},
        {"calls": [[["y"], "add.Tensor", [{"is": "code", "name": "x"}]]]},
        {"calls": [[["y"], "add.Tensor", [{"name": "x"}]]]},
        {"calls": [[["y"], "add.Tensor", [[["x"]]]]]},
        {"calls": [[["y"], "add.Tensor", [{"is": "dtype", "name": "complex128"}]]]},
        {"calls": [[["y"], "add.Tensor", [{"is": "float", "name": "1"}]]]},
    ],
)
def test_fields_of_another_form_are_refused(graph: Graph, changes: dict[str, Any]) -> None:
    with pytest.raises(GraphError, match="expected the JSON of a graph"):
        decode(with_change(graph, **changes))


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(GraphError):
        decode(data)
    with pytest.raises(GraphError):
        decode(with_text(data))


def test_a_reason_is_short_and_says_where(graph: Graph) -> None:
    with pytest.raises(GraphError) as caught:
        decode(with_change(graph, format="x" * 10_000))
    assert len(str(caught.value)) < 400
    assert str(caught.value).endswith("at `$.format`")
