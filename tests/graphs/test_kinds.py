import pytest

from fedlearn.graphs.graph import Dtype, NonFinite, Value
from fedlearn.graphs.kinds import MAX_ITEMS, ArgumentKind, parse_kind

X = Value("x")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Dim", ArgumentKind("Dim", False, False, False)),
        ("Dim?", ArgumentKind("Dim", False, False, True)),
        ("Dim[]", ArgumentKind("Dim", False, True, False)),
        ("Dim[]?", ArgumentKind("Dim", False, True, True)),
        ("Tensor?[]", ArgumentKind("Tensor", True, True, False)),
        ("word(a,b)?", ArgumentKind("word(a,b)", False, False, True)),
    ],
)
def test_a_kind_is_read(text: str, kind: ArgumentKind) -> None:
    assert parse_kind(text) == kind


def test_an_unknown_kind_is_not_read() -> None:
    with pytest.raises(ValueError, match="got 'Code'"):
        parse_kind("Code[]")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("Tensor", [X]),
        ("Tensor?", [X, None]),
        ("Tensor[]", [(), (X,), (X, X)]),
        ("Tensor?[]", [(None, X), (None,)]),
        ("Dim", [0, -12, 12]),
        ("Dim[]?", [None, (), (0, -1)]),
        ("Int", [0, 2**63 - 1, -(2**63)]),
        ("Count", [1, 2**31 - 1]),
        ("Offset", [0, 2**31 - 1]),
        ("Extent", [-1, 0, 2**48]),
        ("Reduction", [0, 1, 2]),
        ("Bool", [True, False]),
        ("Float", [0.0, -1.5, NonFinite("nan")]),
        ("Number", [True, 0, 1.5, NonFinite("-inf"), 2**63 - 1]),
        ("Place", [0, -1.5, 2**48, -(2**48)]),
        ("Dtype", [Dtype("int8")]),
        ("Equation", ["ij,jk->ik", "...i, ij -> ...j"]),
        ("word(none,tanh)", ["none", "tanh"]),
    ],
)
def test_what_is_of_a_kind_is_accepted(text: str, values: list[object]) -> None:
    for value in values:
        assert parse_kind(text).accepts(value), value


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("Tensor", [None, "x", 1, (X,), Dtype("int8")]),
        ("Tensor?", [0, ()]),
        ("Tensor[]", [None, X, (None,), (X, None), (1,)]),
        ("Tensor?[]", [None, (0,)]),
        ("Dim", [-13, 13, True, 0.0, None, X]),
        ("Dim[]", [None, 0, (0, 13), (None,), (0.0,)]),
        ("Int", [2**63, -(2**63) - 1, True, 1.0]),
        ("Count", [0, -1, 2**31, True]),
        ("Offset", [-1, 2**31]),
        ("Extent", [-2, 2**48 + 1]),
        ("Reduction", [-1, 3]),
        ("Bool", [0, 1, None]),
        ("Float", [0, True, "nan"]),
        ("Number", [2**63, "1", None, X]),
        ("Place", [2**48 + 1, -1e300, NonFinite("inf"), True, None]),
        ("Dtype", ["int8", X]),
        ("Equation", ["", "i" * 201, "i;j", "os.system('x')", 3, None]),
        ("word(none,tanh)", ["", "none,tanh", "NONE", None, ()]),
    ],
)
def test_what_is_not_of_a_kind_is_not_accepted(text: str, values: list[object]) -> None:
    for value in values:
        assert not parse_kind(text).accepts(value), value


def test_lists_are_bounded() -> None:
    assert parse_kind("Int[]").accepts((0,) * MAX_ITEMS)
    assert not parse_kind("Int[]").accepts((0,) * (MAX_ITEMS + 1))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Count", "an integer from 1 to 2^31 - 1"),
        ("Tensor?", "an earlier value or nothing"),
        ("Tensor?[]", f"at most {MAX_ITEMS} times an earlier value or nothing"),
        ("word(none,tanh)", "one of none, tanh"),
    ],
)
def test_a_kind_says_what_is_expected(text: str, words: str) -> None:
    assert parse_kind(text).expected == words
