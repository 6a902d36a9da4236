from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from fedlearn.graphs.checks import Limits
from fedlearn.graphs.graph import Argument, ArraySpec, Call, Constant, Dtype, Form, Graph, GraphError, NonFinite, Value

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from fedlearn.tasks.torch_graph.measure import GraphSize, measure, measure_whole  # noqa: E402

X, W = Value("x"), Value("w")
SMALL = Limits(max_bytes=2**20)


def graph_of(*calls: tuple[str, tuple[Argument, ...]], x: ArraySpec | None = None) -> Graph:
    """The calls after one another, named `r0`, `r1`, ..., then the mean of the weights."""
    made = [Call((f"r{number}",), operator, arguments) for number, (operator, arguments) in enumerate(calls)]
    loss = Call(("loss",), "mean.default", (W, None))
    x = x or ArraySpec("x", (2, 3))
    return Graph((x,), (ArraySpec("w", (4, 3)),), (), (), (*made, loss), ("loss",))


class OnlyShapes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fails as soon as a tensor with numbers comes of an operation."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 (whatever the function gives)
        results = function(*args, **(kwargs or {}))
        assert all(x.is_meta for x in pytree.tree_leaves(results) if isinstance(x, Tensor))
        return results


HUGE: list[tuple[str, tuple[Argument, ...]]] = [
    ("arange.default", (10**11, None)),
    ("arange.start", (-(2**48), 2**48, None)),
    ("arange.start_step", (0, 1, 1e-12, Dtype("float64"))),
    ("eye.default", (2**20, None)),
    ("full.default", ((2**20, 2**20), 1.0, None)),
    ("linspace.default", (0, 1, 2**31 - 1, None)),
    ("zeros.default", ((2**31 - 1,), Dtype("int8"))),
    ("ones.default", ((2**31 - 1,) * 12, None)),
    ("new_zeros.default", (X, (2**31 - 1,), None)),
    ("new_full.default", (X, (2**31 - 1,), 1, None)),
    ("expand.default", (X, (2**40, 2, 3))),
    ("repeat.default", (X, (2**31 - 1, 2**31 - 1))),
    ("repeat_interleave.self_int", (X, 2**31 - 1, None)),
    ("pad.default", (X, (2**40, 0), "constant", None)),
    ("constant_pad_nd.default", (X, (0, 2**40), 0)),
    ("constant_pad_nd.default", (X, (2**62, 2**62), 0)),
    ("one_hot.default", (Value("ids"), 2**31 - 1)),
    ("upsample_nearest2d.vec", (Value("image"), (2**31 - 1, 2**31 - 1), None)),
    ("upsample_bilinear2d.vec", (Value("image"), None, False, (1e9, 1e9))),
    ("adaptive_avg_pool2d.default", (Value("image"), (2**31 - 1, 2**31 - 1))),
    ("im2col.default", (Value("image"), (1, 1), (1, 1), (2**20, 2**20), (1, 1))),
    ("outer.default", (Value("row"), Value("row"))),
    ("einsum.default", ("a,b,c->abc", (Value("row"),) * 3)),
]


@pytest.mark.parametrize(("operator", "arguments"), HUGE, ids=[operator for operator, _ in HUGE])
def test_a_huge_result_is_refused_before_it_is_there(operator: str, arguments: tuple[Argument, ...]) -> None:
    others = (ArraySpec("ids", (2,), "int64"), ArraySpec("image", (1, 1, 4, 4)), ArraySpec("row", (2**10,)))
    graph = graph_of((operator, arguments))
    graph = Graph((*graph.inputs, *others), graph.learned, (), (), graph.calls, ("loss",))
    with OnlyShapes(), pytest.raises(GraphError, match=f"^r0 = {operator}: "):
        measure(graph, SMALL)


def test_the_error_says_what_was_asked_and_the_limit() -> None:
    with pytest.raises(GraphError) as caught:
        measure(graph_of(("zeros.default", ((25 * 10**6, 1000), None))))
    assert str(caught.value).startswith(
        "r0 = zeros.default: expected at most 16 GiB for one member, got [25000000, 1000] of 93.1 GiB; "
    )


def test_a_view_that_is_as_long_as_too_much_memory_is_refused() -> None:
    view = ("expand.default", (Value("row"), (2**18 + 1, 1)))
    with pytest.raises(GraphError, match=r"got \[262145, 1\] of 1048580 bytes"):
        measure(graph_of(view, x=ArraySpec("row", (1, 1))), SMALL)


def test_results_that_are_alive_together_count_together() -> None:
    half = ("zeros.default", ((2**17,), None))
    both = ("add.Tensor", (Value("r0"), Value("r1"), 1))
    assert measure(graph_of(half), SMALL).peak_bytes > 2**19
    with pytest.raises(GraphError, match=r"got 0\.\d+ GiB|got 1\d{6} bytes with \[131072\]"):
        measure(graph_of(half, half, both), SMALL)


def test_what_no_later_call_reads_is_not_alive() -> None:
    half = ("mul.Scalar", (X, 2.0))
    x = ArraySpec("x", (2**15,))
    first = measure(graph_of(half, x=x), SMALL).peak_bytes
    assert measure(graph_of(half, half, half, half, half, half, x=x), SMALL).peak_bytes == first


def test_calls_that_are_made_once_stay_alive() -> None:
    zeros = ("zeros.default", ((2**15,), None))
    reads = [("add.Tensor", (X, Value(f"r{number}"), 1)) for number in range(4)]
    extent = measure(graph_of(*[zeros] * 4, *reads, x=ArraySpec("x", (2**15,))), SMALL)
    assert extent.peak_bytes >= 6 * 4 * 2**15


def test_views_keep_the_memory_of_what_they_show() -> None:
    x = ArraySpec("x", (2**15,))
    made = ("mul.Scalar", (X, 2.0))
    view = ("reshape.default", (Value("r0"), (2**5, 2**10)))
    other = ("mul.Scalar", (X, 3.0))
    both = ("sum.default", (Value("r1"), None))
    extent = measure(graph_of(made, view, other, both, x=x))
    assert extent.peak_bytes == extent.tensor_bytes + 2 * 2**17


def test_a_graph_of_many_calls_is_measured_in_time_that_grows_with_them() -> None:
    learned = tuple(ArraySpec(f"w{number}", (1,)) for number in range(3000))
    calls = [Call((f"r{number}",), "neg.default", (Value(f"w{number}"),)) for number in range(3000)]
    loss = Call(("loss",), "neg.default", (Value("r0"),))
    graph = Graph((ArraySpec("x", (1,)),), learned, (), (), (*calls, loss), ("loss",))
    assert measure(graph).n_kernels == 3001


def test_an_extent_is_counted() -> None:
    graph = graph_of(("mul.Scalar", (X, 2.0)), ("reshape.default", (Value("r0"), (6,))))
    tensor_bytes = 4 * (2 * 3 + 4 * 3)
    # A multiplication by a number is one operation, a view one more, and a mean the last.
    forms = (Form((2, 3), "float32"), Form((6,), "float32"), Form((), "float32"))
    assert measure(graph) == GraphSize(tensor_bytes, peak_bytes=tensor_bytes + 24, n_kernels=3, forms=forms)


@pytest.mark.parametrize("form", [Form((3, 2), "float32"), Form((2, 3), "float64"), Form((2**48,), "float32")])
def test_results_are_of_the_forms_that_the_graph_says(form: Form) -> None:
    graph = graph_of(("mul.Scalar", (X, 2.0)))
    said = (Form((2, 3), "float32"), Form((), "float32"))
    assert measure(replace(graph, forms=said)).forms == said
    with pytest.raises(GraphError, match=r"r0: expected the form .* that the graph says, got float32 \[2, 3\]"):
        measure(replace(graph, forms=(form, said[1])))


def test_a_stage_is_measured_with_what_it_receives_and_is_no_whole_model() -> None:
    graph = graph_of(("mul.Tensor", (Value("h"), X)))
    stage = replace(graph, received=(ArraySpec("h", (2, 3)),), outputs=("r0", "h"))
    assert measure(stage).tensor_bytes == measure(graph_of()).tensor_bytes + 24
    several = replace(graph_of(("mul.Scalar", (X, 2.0))), outputs=("loss", "r0"))
    for part in (stage, replace(stage, outputs=("loss",)), several):
        with pytest.raises(GraphError, match="expected a whole model, got a stage"):
            measure_whole(part)


def test_operations_inside_a_call_are_counted() -> None:
    weights = tuple(Value(name) for name in ("w_ih", "w_hh"))
    specs = (ArraySpec("x", (1000, 1, 1)), ArraySpec("state", (1, 1, 1)))
    learned = (ArraySpec("w_ih", (1, 1)), ArraySpec("w_hh", (1, 1)))
    calls = (
        Call(("y", "last"), "rnn_tanh.input", (X, Value("state"), weights, False, 1, False, False)),
        Call(("loss",), "mean.default", (Value("y"), None)),
    )
    graph = Graph(specs, learned, (), (), calls, ("loss",))
    assert measure(graph).n_kernels > 1000
    with pytest.raises(GraphError, match=r"rnn_tanh\.input: expected at most 1000 operations in all, got more"):
        measure(graph, Limits(max_kernels=1000))


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        ("matmul.default", (X, X)),
        ("reshape.default", (X, (7,))),
        ("select.int", (X, 0, 2)),
        ("cat.default", ((), 0)),
        ("conv2d.default", (X, W, None, (1, 1), (0, 0), (1, 1), 1)),
        ("einsum.default", ("ij,jk", (X, X))),
        ("index.Tensor", (X, (X,))),
        ("dropout.default", (X, 1.5)),
        ("dropout.default", (X, -0.1)),
        ("dropout.default", (X, NonFinite("nan"))),
    ],
)
def test_arguments_that_do_not_fit_are_refused(operator: str, arguments: tuple[Argument, ...]) -> None:
    with pytest.raises(GraphError, match=f"r0 = {operator}: its arguments do not fit: "):
        measure(graph_of((operator, arguments)))


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [("slice.Tensor", (X, 0, 1, 1, 1)), ("zeros.default", ((2**30, 0), None)), ("repeat.default", (X, (0, 1)))],
)
def test_an_empty_result_is_refused(operator: str, arguments: tuple[Argument, ...]) -> None:
    with pytest.raises(GraphError, match="expected at least one element, got"):
        measure(graph_of((operator, arguments)))


def test_the_loss_is_one_number() -> None:
    graph = graph_of()
    calls = (Call(("loss",), "relu.default", (W,)),)
    with pytest.raises(GraphError, match=r"expected one number as its loss, got \[4, 3\]"):
        measure_whole(Graph(graph.inputs, graph.learned, (), (), calls, ("loss",)))


def test_constants_and_frozen_tensors_count() -> None:
    graph = graph_of()
    constant = Constant(ArraySpec("c", (8,), "uint8"), bytes(8))
    more = Graph(graph.inputs, graph.learned, (ArraySpec("f", (2,)),), (constant,), graph.calls, ("loss",))
    assert measure(more).tensor_bytes == measure(graph).tensor_bytes + 16
