"""Whatever comes in place of a graph is measured or refused: no other error, no memory, nothing else that is run."""

import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlearn.graphs.checks import Limits
from fedlearn.graphs.codec import decode, encode
from fedlearn.graphs.graph import (
    ITEM_BYTES,
    Argument,
    ArraySpec,
    Call,
    Constant,
    Dtype,
    Graph,
    GraphError,
    NonFinite,
    Value,
)
from fedlearn.graphs.kinds import ArgumentKind
from fedlearn.graphs.operators import OPERATORS, Operator

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from fedlearn.tasks.torch_graph.measure import measure  # noqa: E402
from fedlearn.tasks.torch_graph.program import Program  # noqa: E402

LIMITS = Limits(max_bytes=2**20, max_kernels=2000, max_calls=100, max_tensors=20)

GRAPH = Graph(
    inputs=(ArraySpec("x", (2, 3)), ArraySpec("ids", (2, 3), "int64"), ArraySpec("image", (1, 2, 4, 4))),
    learned=(ArraySpec("w", (4, 3)), ArraySpec("table", (5, 3)), ArraySpec("kernel", (2, 2, 3, 3))),
    frozen=(ArraySpec("bias", (4,)),),
    constants=(Constant(ArraySpec("c", (2,), "int64"), bytes(16)),),
    calls=(
        Call(("e",), "embedding.default", (Value("table"), Value("ids"))),
        Call(("m",), "mean.dim", (Value("e"), (1,), False, Dtype("float32"))),
        Call(("s",), "add.Tensor", (Value("x"), Value("m"), 1)),
        Call(("y",), "linear.default", (Value("s"), Value("w"), Value("bias"))),
        Call(("a", "b"), "split_with_sizes.default", (Value("y"), (1, 3), 1)),
        Call(("z",), "zeros.default", ((2, 1), None)),
        Call(("j",), "cat.default", ((Value("a"), Value("b"), Value("z")), 1)),
        Call(("k",), "masked_fill.Scalar", (Value("j"), Value("q"), NonFinite("-inf"))),
        Call(("n",), "pad.default", (Value("k"), (0, 1), "constant", 0.0)),
        Call(("o",), "conv2d.default", (Value("image"), Value("kernel"), None, (1, 1), (1, 1), (1, 1), 1)),
        Call(("p",), "logsumexp.default", (Value("o"), (1, 2, 3), False)),
        Call(("i",), "index.Tensor", (Value("n"), (Value("c"), None))),
        Call(("r",), "nll_loss_nd.default", (Value("n"), Value("c"), None, 1, -100)),
        Call(("t",), "add.Tensor", (Value("r"), Value("p"), 1)),
        Call(("loss",), "sum.default", (Value("t"), None)),
    ),
    outputs=("loss",),
)
GRAPH = msgspec.structs.replace(
    GRAPH, calls=(*GRAPH.calls[:7], Call(("q",), "gt.Scalar", (Value("j"), 9.0)), *GRAPH.calls[7:])
)


class NothingLarge(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fails as soon as an operation gives numbers, or with `max_bytes` more than so many."""

    def __init__(self, max_bytes: int = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._max_bytes = max_bytes

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 (whatever the function gives)
        assert function.__module__.startswith("torch._ops.aten")
        results = function(*args, **(kwargs or {}))
        for x in pytree.tree_leaves(results):
            assert not isinstance(x, Tensor) or x.is_meta or x.untyped_storage().nbytes() <= self._max_bytes
        return results


def is_taken(data: bytes) -> bool:
    """Whether the bytes are a graph that may be run; whatever they are, there is no other error than a refusal."""
    with NothingLarge():
        try:
            measure(decode(data), LIMITS)
        except GraphError as error:
            reason = str(error)
        else:
            return True
    assert len(reason) < 1000
    return False


def test_the_graph_is_one_before_it_is_changed() -> None:
    assert is_taken(encode(GRAPH))


JUNK: list[Any] = [
    None, True, -1, 0, 1, 2, 3, 12, 2**31, 2**48, 2**63 - 1, -(2**63), 2**64, 10**30, 0.5, -1e300, 1e-300, "", "x", "w",
    "loss", "float32", "__class__", "os.system", "add.Tensor", "zeros.default", "tanh", [], [0], [[]], [1, 1, 1, 1],
    [2**40, 2**40], {}, {"is": "value", "name": "y"}, {"is": "value", "name": "loss"}, {"is": "dtype", "name": "bool"},
    {"is": "float", "name": "nan"}, {"is": "float", "name": "inf"}, {"is": "code", "name": "x"}, "A" * 3000,
]  # fmt: skip


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:  # noqa: ANN401 (JSON)
    keys = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    return [path, *(place for key in keys for place in places(tree[key], (*path, key)))]


def changed(tree: Any, path: tuple[Any, ...], value: Any) -> Any:  # noqa: ANN401 (JSON)
    """The tree with another value at a place."""
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = changed(tree[path[0]], path[1:], value)
    return copy


TREE = msgspec.json.decode(msgspec.json.encode(GRAPH))
PLACES = places(TREE)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_graph_with_a_few_other_values_is_measured_or_refused(data: st.DataObject) -> None:
    tree = TREE
    for place in data.draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=3)):
        nearby = st.sampled_from([part for part in JUNK if type(part) is type(at(TREE, place))] or JUNK)
        try:
            tree = changed(tree, place, data.draw(nearby | st.sampled_from(JUNK) | st.integers(-5, 20)))
        except (KeyError, IndexError, TypeError):  # An earlier change took the place away.
            continue
    is_taken(zlib.compress(msgspec.json.encode(tree)))


def at(tree: Any, place: tuple[Any, ...]) -> Any:  # noqa: ANN401 (JSON)
    for key in place:
        tree = tree[key]
    return tree


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_bytes_that_were_changed_on_the_way_are_refused(data: st.DataObject) -> None:
    encoded = bytearray(encode(GRAPH))
    for place in data.draw(st.lists(st.integers(0, len(encoded) - 1), min_size=1, max_size=4, unique=True)):
        encoded[place] ^= data.draw(st.integers(1, 255))
    assert not is_taken(bytes(encoded))


SPECS = (
    ArraySpec("f", (4, 4)), ArraySpec("g", (4, 4, 4, 4)), ArraySpec("i", (4, 4), "int64"), ArraySpec("b", (4,), "bool"),
    ArraySpec("v", (4,)), ArraySpec("n", ()),
)  # fmt: skip
NAMES = [spec.name for spec in SPECS] + ["w"]

SMALL = st.sampled_from([0, 1, 2, 3, 4, 5, -1, -2, 100, 2**20, 2**31 - 1, 2**48, -(2**48), 2**63 - 1, -(2**63)])
NUMBERS: st.SearchStrategy[Argument] = SMALL | st.sampled_from(
    [0.0, 0.5, -1.0, 2.0, 1e-5, 1e30, NonFinite("inf"), NonFinite("nan"), True]
)
ITEMS: dict[str, st.SearchStrategy[Argument]] = {
    "Tensor": st.sampled_from([Value(name) for name in NAMES]),
    "Bool": st.booleans(),
    "Float": NUMBERS.filter(lambda number: isinstance(number, float | NonFinite)),
    "Number": NUMBERS,
    "Place": NUMBERS,
    "Dtype": st.sampled_from([Dtype(name) for name in ITEM_BYTES]),
    "Equation": st.sampled_from(["ij,jk->ik", "i,j->ij", "...i,i->...", "ii->i", "i,i,i", "a,b,c,d->abcd", "->", "i"]),
}


def arguments_of(kind: ArgumentKind) -> st.SearchStrategy[Argument]:
    """Arguments that the kind accepts, likely ones more often."""
    words = kind.base.removeprefix("word(").removesuffix(")").split(",")
    one = ITEMS.get(kind.base, st.sampled_from(words) if kind.base.startswith("word(") else SMALL)
    if kind.is_list:
        item = one | st.none() if kind.item_may_be_none else one
        one = st.lists(item, max_size=5).map(tuple)  # type: ignore[arg-type]
    if kind.may_be_none:
        one = st.none() | one
    return one.filter(kind.accepts)


@st.composite
def calls(draw: st.DrawFn, operator: Operator) -> Call:
    arguments = tuple(draw(arguments_of(parameter.kind)) for parameter in operator.parameters)
    n_results = operator.n_results
    if n_results < 0:
        n_results = len(arguments[operator.counted_by])  # type: ignore[arg-type]
    return Call(tuple(f"r{number}" for number in range(n_results)), operator.name, arguments)


# The same calls each time: a kernel that ends the process ought to do so where it is looked for.
@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.sampled_from(list(OPERATORS.values())).flatmap(calls))
def test_any_call_that_is_taken_takes_what_was_measured(call: Call) -> None:
    loss = Call(("loss",), "sum.default", (Value("w"), None))
    graph = Graph(SPECS, (ArraySpec("w", (4, 4)),), (), (), (call, loss), ("loss",))
    if not is_taken(encode(graph)):
        return
    extent = measure(graph, LIMITS)
    program = Program(graph, {})
    rows = {spec.name: torch.ones(spec.shape).to(getattr(torch, spec.dtype)) for spec in SPECS}
    # Some kernels are stricter than the shapes of their results are.
    with torch.no_grad(), NothingLarge(extent.peak_bytes), suppress(RuntimeError, IndexError, NotImplementedError):
        program(rows)
