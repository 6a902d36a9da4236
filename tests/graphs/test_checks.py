from typing import Any

import pytest
from msgspec.structs import replace

from fedlearn.graphs.checks import Limits, check, in_words, values_read
from fedlearn.graphs.graph import Argument, ArraySpec, Call, Constant, Graph, GraphError, GraphTooLargeError, Value

Y = Value("y")


def with_call(graph: Graph, operator: str, *arguments: Argument, results: tuple[str, ...] = ("new",)) -> Graph:
    return replace(graph, calls=(*graph.calls, Call(results, operator, arguments)))


def test_a_well_formed_graph_is_accepted(graph: Graph) -> None:
    check(graph)


def test_a_tensor_of_100_gb_is_refused_by_name(graph: Graph) -> None:
    huge = ArraySpec("layer.weight", (25_000, 10**6))
    with pytest.raises(GraphError) as caught:
        check(replace(graph, learned=(huge,)))
    assert str(caught.value).startswith(
        "graph: expected tensors of at most 16 GiB together, got 93.1 GiB, "
        "of which 'layer.weight' [25000, 1000000] takes 93.1 GiB"
    )


@pytest.mark.parametrize("field", ["inputs", "learned", "frozen"])
def test_all_arrays_count_together(graph: Graph, field: str) -> None:
    one: dict[str, Any] = {field: (*getattr(graph, field), ArraySpec("more", (200,)))}
    with pytest.raises(GraphError, match="got 896 bytes"):
        check(replace(graph, **one), Limits(max_bytes=895))


def test_as_much_as_allowed_is_accepted(graph: Graph) -> None:
    check(graph, Limits(max_bytes=24 + 48 + 16 + 8, max_tensors=4, max_calls=4))


@pytest.mark.parametrize("limits", [Limits(max_bytes=95), Limits(max_tensors=3), Limits(max_calls=3)])
def test_more_than_allowed_is_refused(graph: Graph, limits: Limits) -> None:
    with pytest.raises(GraphError, match="at most"):
        check(graph, limits)


def test_memory_is_told_from_everything_else(graph: Graph) -> None:
    with pytest.raises(GraphTooLargeError):
        check(graph, Limits(max_bytes=95))
    with pytest.raises(GraphError) as caught:
        check(graph, Limits(max_calls=3))
    assert type(caught.value) is GraphError


@pytest.mark.parametrize("data", [b"", bytes(7), bytes(9)])
def test_a_constant_of_another_size_is_refused(graph: Graph, data: bytes) -> None:
    constant = Constant(ArraySpec("shift", (1,), "int64"), data)
    with pytest.raises(GraphError, match=f"constant 'shift': expected 8 bytes, got {len(data)}"):
        check(replace(graph, constants=(constant,)))


def test_an_operator_outside_the_table_is_refused_with_the_remedy(graph: Graph) -> None:
    with pytest.raises(GraphError, match=r"call 4 \('system.default'\): not an operator.*--share nothing"):
        check(with_call(graph, "system.default", Y))


@pytest.mark.parametrize("name", ["__class__", "relu", "relu.default.op", "relu.default\n", "aten.relu.default", "."])
def test_only_names_of_the_table_are_operators(graph: Graph, name: str) -> None:
    with pytest.raises(GraphError, match="not an operator"):
        check(with_call(graph, name, Y))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (Call(("new",), "relu.default", ()), "expected 1 arguments, got 0"),
        (Call(("new",), "relu.default", (Y, Y)), "expected 1 arguments, got 2"),
        (Call((), "relu.default", (Y,)), "expected 1 results, got 0"),
        (Call(("new", "newer"), "relu.default", (Y,)), "expected 1 results, got 2"),
        (Call(("new",), "relu.default", (Value("later"),)), "expected arguments that are earlier values, got 'later'"),
        (Call(("new",), "relu.default", (Value("new"),)), "earlier values, got 'new'"),
        (Call(("new",), "cat.default", ((Y, Value("no")), 0)), "earlier values, got 'no'"),
        (Call(("new",), "relu.default", (3,)), "self: expected an earlier value, got 3"),
        (Call(("new",), "select.int", (Y, 99, 0)), "dim: expected an integer from -12 to 12, got 99"),
        (Call(("a", "b"), "split_with_sizes.default", (Y, (1, 1, 2), 1)), "expected 3 results, got 2"),
        (Call(("y",), "relu.default", (Y,)), "expected names that differ, got 'y' twice"),
        (Call(("x",), "relu.default", (Y,)), "expected names that differ, got 'x' twice"),
        (Call(("a", "a"), "sort.default", (Y, 0, False)), "expected names that differ, got 'a' twice"),
    ],
)
def test_a_malformed_call_is_refused(graph: Graph, call: Call, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        check(replace(graph, calls=(*graph.calls, call)))


def test_a_split_with_a_result_for_each_size_is_accepted(graph: Graph) -> None:
    check(with_call(graph, "split_with_sizes.default", Y, (1, 3), 1, results=("a", "b")))


def test_arrays_have_different_names(graph: Graph) -> None:
    with pytest.raises(GraphError, match="got 'x' twice"):
        check(replace(graph, frozen=(*graph.frozen, ArraySpec("x", (1,)))))


def test_values_come_before_what_reads_them(graph: Graph) -> None:
    with pytest.raises(GraphError, match="earlier values"):
        check(replace(graph, calls=graph.calls[::-1]))


@pytest.mark.parametrize("output", ["x", "layer.weight", "no", "shift"])
def test_the_loss_is_the_result_of_a_call(graph: Graph, output: str) -> None:
    with pytest.raises(GraphError, match="expected the result of a call as its output"):
        check(replace(graph, outputs=(output,)))


def test_something_is_learned(graph: Graph) -> None:
    with pytest.raises(GraphError, match="at least one tensor to learn"):
        check(replace(graph, learned=(), frozen=(*graph.frozen, *graph.learned)))


def test_something_that_is_learned_is_read(graph: Graph) -> None:
    unused = ArraySpec("unused", (3,))
    check(replace(graph, learned=(*graph.learned, unused)))
    with pytest.raises(GraphError, match="expected a call that reads a learned tensor, got none"):
        check(replace(graph, learned=(unused,), frozen=(*graph.frozen, *graph.learned)))


def test_what_is_learned_is_float32(graph: Graph) -> None:
    with pytest.raises(GraphError, match=r"learned tensor .layer\.weight.: expected float32, got float16"):
        check(replace(graph, learned=(ArraySpec("layer.weight", (4, 3), "float16"),)))


def test_no_array_is_empty(graph: Graph) -> None:
    with pytest.raises(GraphError, match=r"'x': expected no empty dimension, got \[0, 3\]"):
        check(replace(graph, inputs=(ArraySpec("x", (0, 3)),)))


def test_names_are_not_deep(graph: Graph) -> None:
    more = ArraySpec(".".join("a" * 16), (1,))
    check(replace(graph, frozen=(*graph.frozen, more)))
    with pytest.raises(GraphError, match="expected at most 16 parts in a name"):
        check(replace(graph, frozen=(*graph.frozen, replace(more, name=f"{more.name}.a"))))


def test_errors_do_not_repeat_much_of_what_came(graph: Graph) -> None:
    with pytest.raises(GraphError) as caught:
        check(with_call(graph, "x" * 250, Y))
    assert len(str(caught.value)) < 300
    with pytest.raises(GraphError) as caught:
        check(with_call(graph, "relu.default", (1,) * 5000))
    assert len(str(caught.value)) < 300


def test_values_read_are_those_of_arguments_and_lists() -> None:
    call = Call(("new",), "index.Tensor", (Value("a"), (None, Value("b"))))
    assert list(values_read(call)) == ["a", "b"]


@pytest.mark.parametrize(("n_bytes", "words"), [(12, "12 bytes"), (2**30, "1 GiB"), (100 * 10**9, "93.1 GiB")])
def test_bytes_are_read_as_people_do(n_bytes: int, words: str) -> None:
    assert in_words(n_bytes) == words
