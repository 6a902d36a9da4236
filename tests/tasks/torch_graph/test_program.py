from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from fedlearn.graphs.graph import Argument, ArraySpec, Call, Constant, Dtype, Graph, GraphError, NonFinite, Value

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from fedlearn.tasks.torch_graph.program import Program  # noqa: E402
from fedlearn.tasks.torch_graph.steps import plan  # noqa: E402

X, W = Value("x"), Value("layer.weight")
GRAPH = Graph(
    inputs=(ArraySpec("x", (2, 3)),),
    learned=(ArraySpec("layer.weight", (4, 3)),),
    frozen=(ArraySpec("layer.bias", (4,)),),
    constants=(Constant(ArraySpec("shift", (1,), "int64"), (5).to_bytes(8, "little")),),
    calls=(
        Call(("y",), "linear.default", (X, W, Value("layer.bias"))),
        Call(("twice",), "mul.Scalar", (Value("shift"), 2)),
        Call(("z",), "add.Tensor", (Value("y"), Value("twice"), 1)),
        Call(("loss",), "mean.default", (Value("z"), None)),
    ),
    outputs=("loss",),
)
BIAS = {"layer.bias": np.arange(4, dtype=np.float32)}
ROWS = {"x": torch.arange(6.0).reshape(2, 3)}


def with_calls(*calls: Call) -> Graph:
    return replace(GRAPH, frozen=(), constants=(), calls=calls)


def result_of(operator: str, *arguments: Argument) -> Tensor:
    """What a program gives for one call that gives one number."""
    return Program(with_calls(Call(("loss",), operator, arguments)), {})(ROWS)


def test_a_program_gives_the_loss_of_rows() -> None:
    program = Program(GRAPH, BIAS)
    assert program(ROWS).item() == 11.5  # weights are zeros
    program.module.get_parameter("layer.weight").data.fill_(2.0)
    assert program(ROWS).item() == 11.5 + 2 * 7.5
    assert program(ROWS).shape == ()


def test_a_stage_gives_what_follows_from_what_it_receives() -> None:
    calls = (Call(("twice",), "mul.Scalar", (Value("h"), 2)), Call(("y",), "linear.default", (Value("twice"), W, None)))
    stage = replace(with_calls(*calls), inputs=(), received=(ArraySpec("h", (2, 3)),), outputs=("h", "y"))
    program = Program(stage, {})
    program.module.get_parameter("layer.weight").data.fill_(1.0)
    for factor in (1.0, 3.0):
        values = program.run({}, {"h": factor * ROWS["x"]})
        assert list(values) == ["h", "y"]
        torch.testing.assert_close(values["y"], 2 * factor * ROWS["x"].sum(1, keepdim=True).expand(2, 4))
    with pytest.raises(GraphError, match=r"'h': expected float32 \[2, 3\], got float32 \[3, 2\]"):
        program.run({}, {"h": ROWS["x"].T})


def test_parameters_and_buffers_have_the_names_of_the_graph() -> None:
    program = Program(GRAPH, BIAS)
    assert [name for name, _ in program.module.named_parameters()] == ["layer.weight"]
    assert [name for name, _ in program.module.named_buffers()] == ["layer.bias"]
    assert program.module.get_parameter("layer.weight").dtype is torch.float32


def test_calls_that_never_change_are_made_once() -> None:
    once, each_time = plan(GRAPH)
    assert [step.call.results for step in once] == [("twice",)]
    assert [step.call.results for step in each_time] == [("y",), ("z",), ("loss",)]
    program = Program(GRAPH, BIAS)
    assert program.prepare() is program.prepare()
    assert "twice" in program.prepare()


def test_a_value_is_dropped_after_its_last_reader() -> None:
    _, each_time = plan(GRAPH)
    assert [step.last_read for step in each_time] == [(), ("y",), ("z",)]
    twice = Call(("loss",), "add.Tensor", (Value("y"), Value("y"), 1))
    unread = Call(("unread",), "relu.default", (Value("y"),))
    _, steps = plan(replace(GRAPH, calls=(GRAPH.calls[0], unread, twice)))
    assert [step.last_read for step in steps] == [(), ("unread",), ("y",)]


def test_nothing_of_one_run_is_left_in_the_next() -> None:
    program = Program(GRAPH, BIAS)
    program(ROWS)
    assert program.prepare().keys() == {"shift", "twice", "layer.bias"}


def test_moving_a_program_moves_all_it_reads() -> None:
    program = Program(GRAPH, BIAS)
    program.prepare()
    program.module.to("meta")
    assert all(value.is_meta for value in program.prepare().values())
    assert program({"x": ROWS["x"].to("meta")}).is_meta


@pytest.mark.parametrize("number", [NonFinite("inf"), NonFinite("-inf"), NonFinite("nan"), 2.5, 3])
def test_numbers_arrive_as_they_are(number: NonFinite | float) -> None:
    expected = float(number.name) if isinstance(number, NonFinite) else number
    got = result_of("scalar_tensor.default", number, Dtype("float64")).item()
    np.testing.assert_equal(got, float(expected))


def test_lists_of_values_may_have_gaps() -> None:
    pick = Call(("row",), "argmax.default", (X, 0, False))
    index = Call(("picked",), "index.Tensor", (X, (None, Value("row"))))
    loss = Call(("loss",), "sum.default", (Value("picked"), None))
    assert Program(with_calls(pick, index, loss), {})(ROWS).item() == ROWS["x"][:, [1, 1, 1]].sum()


def test_one_call_may_have_many_results() -> None:
    split = Call(("a", "b"), "split_with_sizes.default", (X, (1, 2), 1))
    largest = Call(("largest", "place"), "max.dim", (Value("b"), 0, False))
    loss = Call(("loss",), "sum.default", (Value("largest"), None))
    assert Program(with_calls(split, largest, loss), {})(ROWS).item() == 4 + 5


@pytest.mark.parametrize(
    ("frozen", "message"),
    [
        ({}, r"frozen tensors: expected \['layer.bias'\] with the graph, got none"),
        ({"layer.bias": np.zeros(5, np.float32)}, r"'layer.bias': expected float32 \[4\], got float32 \[5\]"),
        ({"layer.bias": np.zeros(4, np.float64)}, r"'layer.bias': expected float32 \[4\], got float64 \[4\]"),
        ({"layer.bias": np.zeros(4, object)}, r"'layer.bias': expected float32 \[4\], got object \[4\]"),
    ],
)
def test_frozen_arrays_are_those_that_the_graph_names(frozen: dict[str, NDArray[Any]], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Program(GRAPH, frozen)


@pytest.mark.parametrize(
    "name", ["forward", "training", "a..b", ".a", "a.", "_parameters", "named_parameters.x", "x.training"]
)
def test_a_name_that_no_module_can_have_is_refused(name: str) -> None:
    with pytest.raises(GraphError, match="expected a name that a module could have"):
        Program(replace(GRAPH, learned=(ArraySpec(name, (4, 3)),), calls=()), BIAS)


def test_a_name_and_a_part_of_it_cannot_both_be_tensors() -> None:
    learned = (ArraySpec("a", (4, 3)), ArraySpec("a.b", (4, 3)))
    with pytest.raises(GraphError, match="expected a name that a module could have"):
        Program(replace(GRAPH, learned=learned), BIAS)


def test_learned_tensors_come_in_the_order_of_a_module() -> None:
    learned = (ArraySpec("a.b", (4, 3)), ArraySpec("c.d", (4, 3)), ArraySpec("a.e", (4, 3)))
    with pytest.raises(GraphError, match="expected the order in which a module lists its parameters"):
        Program(replace(GRAPH, learned=learned), BIAS)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({}, "expected a column 'x', got"),
        ({"x": torch.zeros(3, 3)}, r"column 'x': expected float32 \[2, 3\], got float32 \[3, 3\]"),
        ({"x": torch.zeros(2, 3, dtype=torch.int64)}, r"expected float32 \[2, 3\], got int64 \[2, 3\]"),
    ],
)
def test_rows_are_those_that_the_graph_was_made_for(rows: dict[str, Tensor], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Program(GRAPH, BIAS)(rows)
