import pytest
from msgspec.structs import replace

from fedlearn.graphs.flow import Flow
from fedlearn.graphs.graph import Call, Form, Graph, GraphError, Value
from fedlearn.graphs.pieces import Piece, pieces, stages_of
from fedlearn.graphs.stages import cut


def test_pieces_say_what_a_plan_needs(deep: Graph) -> None:
    assert pieces(deep) == (
        Piece(range(4), ("table",), 2 + 2 + 1 + 8, 32, 32),
        Piece(range(4, 9), ("first",), 8 * 4 + 3 * 8 + 16, 32, 96),  # of a row x, what is made of it, and the next
        Piece(range(9, 11), ("second",), 8 * 4 + 8, 32, 64),
        Piece(range(11, 13), ("table",), 18 * 4 + 1, 4, 32 + 72),
    )


def test_another_form_of_a_tensor_is_no_activation(deep: Graph) -> None:
    (turned,) = [number for number, call in enumerate(deep.calls) if call.operator == "t.default"]
    assert Flow(deep).alive_bytes(turned) == 32


def test_a_cut_after_pieces_is_one_where_the_last_of_them_ends(deep: Graph) -> None:
    assert stages_of(deep, [1, 3]) == cut(deep, [4, 11])
    assert stages_of(deep, []) == (deep,)


def test_a_cut_stands_where_the_fewest_bytes_cross(deep: Graph) -> None:
    forms = list(deep.forms)
    forms[10] = Form((4, 4), "float32")
    third = pieces(replace(deep, forms=tuple(forms)))[2]
    assert (third.calls, third.sent_bytes) == (range(9, 10), 32)


def test_frozen_tensors_are_named_and_a_place_that_cannot_be_is_none(deep: Graph) -> None:
    costly = Call(("scale",), "linear.default", (Value("one"), Value("other"), None))
    frozen = tuple(replace(deep.learned[1], name=name, shape=(1, 4)) for name in ("one", "other"))
    graph = replace(deep, calls=(*deep.calls[:2], costly, *deep.calls[3:]), frozen=frozen)
    first, second, _ = pieces(graph)
    assert first.calls == range(9)
    assert first.tensors == ("table", "first", "one", "other")
    assert second.tensors == ("second",)


@pytest.mark.parametrize("cuts", [[0], [4], [2, 1], [1, 1], [-1]])
def test_cuts_are_numbers_of_pieces_in_order(deep: Graph, cuts: list[int]) -> None:
    with pytest.raises(GraphError, match="cuts: expected ascending numbers from 1 to 3, got"):
        stages_of(deep, cuts)


def test_a_tensor_that_nobody_would_hold_is_named(deep: Graph) -> None:
    unread = replace(deep, learned=(*deep.learned, replace(deep.learned[0], name="spare")))
    with pytest.raises(GraphError, match=r"'spare': expected a call that reads it, got none, .* with train="):
        pieces(unread)
