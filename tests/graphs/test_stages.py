import pytest
from msgspec.structs import replace

from fedlearn.graphs.checks import check
from fedlearn.graphs.codec import decode, encode
from fedlearn.graphs.flow import MAX_REPEATED_BYTES
from fedlearn.graphs.graph import Argument, ArraySpec, Call, Dtype, Form, Graph, GraphError, Value
from fedlearn.graphs.stages import cut

# Positions of calls in the graph `deep`.
EMBEDDING, FIRST, RELU, PRODUCT, MASKED, HEAD = 3, 4, 5, 9, 10, 11


def with_call(graph: Graph, position: int, operator: str, *arguments: Argument, dtype: str = "float32") -> Graph:
    """Another operator at a place; its result has the old name."""
    calls, forms = list(graph.calls), list(graph.forms)
    calls[position] = Call(calls[position].results, operator, arguments)
    forms[position] = Form(forms[position].shape, dtype)  # type: ignore[arg-type]
    return replace(graph, calls=tuple(calls), forms=tuple(forms))


def names(arrays: tuple[ArraySpec, ...]) -> list[str]:
    return [array.name for array in arrays]


def results(graph: Graph) -> list[str]:
    return [name for call in graph.calls for name in call.results]


def test_a_stage_has_what_its_calls_read_and_no_more(deep: Graph) -> None:
    bottom, middle, top = cut(deep, [FIRST, HEAD])
    assert (names(bottom.inputs), names(bottom.learned), bottom.constants) == (["ids"], ["table"], ())
    assert (names(middle.inputs), names(middle.learned)) == (["ids"], ["first", "second"])
    assert middle.constants == deep.constants
    assert (names(top.inputs), names(top.learned), top.constants) == (["ids"], ["table"], ())
    assert results(bottom) == ["x"]
    assert results(top) == ["logits", "loss"]


def test_what_a_stage_gives_is_what_the_next_receives(deep: Graph) -> None:
    bottom, middle, top = cut(deep, [FIRST, HEAD])
    assert (bottom.received, bottom.outputs) == ((), ("x",))
    assert (middle.received, middle.outputs) == ((ArraySpec("x", (2, 4)),), ("e",))
    assert (top.received, top.outputs) == ((ArraySpec("e", (2, 4)),), ("loss",))


def test_a_value_for_a_later_stage_is_passed_on_by_those_between(deep: Graph) -> None:
    _, first, rest = cut(deep, [FIRST, RELU])
    assert results(first) == ["a"]
    assert first.outputs == ("x", "a")
    assert names(rest.received) == ["x", "a"]


def test_what_no_member_has_for_itself_is_computed_again_where_it_is_needed(deep: Graph) -> None:
    bottom, middle, top = cut(deep, [FIRST, MASKED])
    assert "scale" in results(middle)
    assert results(top)[:2] == ["mask", "wide"]
    assert not {"mask", "wide", "scale"} & {*results(bottom), *bottom.outputs, *middle.outputs}


def test_a_transposed_tensor_is_where_it_is_used(deep: Graph) -> None:
    _, top = cut(deep, [PRODUCT])
    assert names(top.learned) == ["table", "second"]
    assert results(top)[0] == "mask"
    assert "turned" in results(top)
    assert names(top.received) == ["c"]


def test_a_tied_tensor_is_on_both_sides_of_a_cut(deep: Graph) -> None:
    assert [names(stage.learned) for stage in cut(deep, [FIRST])] == [["table"], ["table", "first", "second"]]


def test_without_cuts_there_is_one_stage(deep: Graph) -> None:
    assert cut(deep, []) == (deep,)


def test_a_stage_is_a_graph_that_can_be_checked_sent_and_cut(deep: Graph) -> None:
    for stage in cut(deep, [FIRST, HEAD]):
        check(stage)
        assert decode(encode(stage)) == stage
    rest = cut(deep, [FIRST])[1]
    lower, upper = cut(rest, [results(rest).index("b")])
    assert names(lower.received) == ["x"]
    assert lower.outputs == ("x", "a")
    assert upper == cut(deep, [RELU])[1]


@pytest.mark.parametrize("positions", [[0], [13], [-1], [HEAD, FIRST], [FIRST, FIRST]])
def test_cuts_stand_between_calls_in_order(deep: Graph, positions: list[int]) -> None:
    with pytest.raises(GraphError, match="cuts: expected ascending positions from 1 to 12, got"):
        cut(deep, positions)


def test_something_crosses_a_cut(deep: Graph) -> None:
    with pytest.raises(GraphError, match=r"cut before call 3 \(embedding.default\): .* nothing crosses it"):
        cut(deep, [EMBEDDING])


def test_only_float32_crosses_a_cut(deep: Graph) -> None:
    halves = with_call(deep, RELU, "to.dtype", Value("a"), Dtype("float16"), dtype="float16")
    with pytest.raises(GraphError, match=r"'b' would cross it, which is float16; only float32 is handed on"):
        cut(halves, [RELU + 1])


def test_a_stage_learns_something(deep: Graph) -> None:
    with pytest.raises(GraphError, match="calls 10 to 11: expected a stage that learns a tensor, got none"):
        cut(deep, [MASKED, HEAD])


def test_what_all_members_have_and_costs_much_does_not_cross(deep: Graph) -> None:
    frozen = (ArraySpec("one", (1, 4)), ArraySpec("other", (1, 4)))
    costly = replace(with_call(deep, 2, "linear.default", *map(Value, ("one", "other")), None), frozen=frozen)
    with pytest.raises(GraphError, match="'scale' would cross it, which is the same for all members and too costly"):
        cut(costly, [FIRST])
    assert cut(costly, [PRODUCT])[1].frozen == ()


@pytest.mark.parametrize(("n_bytes", "is_repeated"), [(MAX_REPEATED_BYTES, True), (MAX_REPEATED_BYTES + 1, False)])
def test_a_frozen_mask_is_on_both_sides_of_a_cut_unless_it_is_large(
    deep: Graph, n_bytes: int, *, is_repeated: bool
) -> None:
    frozen = ArraySpec("frozen", (n_bytes,), "uint8")
    masked = replace(with_call(deep, 2, "slice.Tensor", Value("frozen"), 0, 0, 1, 1), frozen=(frozen,))
    if is_repeated:
        assert [stage.frozen for stage in cut(masked, [FIRST])] == [(), (frozen,)]
    else:
        with pytest.raises(GraphError, match="'scale' would cross it"):
            cut(masked, [FIRST])


def test_a_graph_that_does_not_say_its_forms_is_not_cut(deep: Graph) -> None:
    with pytest.raises(GraphError, match="expected the forms of its results, got none; export it again"):
        cut(replace(deep, forms=()), [FIRST])
    with pytest.raises(GraphError, match="expected a form for each of 13 results, got 12"):
        check(replace(deep, forms=deep.forms[1:]))


def test_outputs_are_different_values(deep: Graph) -> None:
    for outputs in ((), ("loss", "loss")):
        with pytest.raises(GraphError, match="expected different outputs"):
            check(replace(deep, outputs=outputs))
