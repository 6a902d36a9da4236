import pytest

from fedlearn.graphs.graph import ITEM_BYTES, ArraySpec, DtypeName, Graph


@pytest.mark.parametrize(("dtype", "n_bytes"), [("float64", 48), ("bfloat16", 12), ("int64", 48), ("bool", 6)])
def test_an_array_takes_as_many_bytes_as_its_elements(dtype: DtypeName, n_bytes: int) -> None:
    assert ArraySpec("x", (2, 3), dtype).n_bytes == n_bytes


def test_numbers_have_one_element() -> None:
    assert ArraySpec("x", ()).n_bytes == ITEM_BYTES["float32"]


def test_what_calls_are_given_stands_in_one_order(graph: Graph) -> None:
    assert [array.name for array in graph.given] == ["x", "layer.weight", "layer.bias", "shift"]
