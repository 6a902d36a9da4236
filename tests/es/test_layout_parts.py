from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from fedlearn.es.layout import ParameterLayout, TensorSpec
from tests.es.parts import PARTS, WHOLE, pieces

Find = Callable[[ParameterLayout, ParameterLayout], list[slice]]


def test_a_part_keeps_the_order_and_the_numbers_of_the_whole() -> None:
    part = WHOLE.part(["start", "inner", "kernel"])
    assert [tensor.name for tensor in part.tensors] == ["inner", "kernel", "start"]
    assert part.numbers == (1, 3, 7)
    assert part.offsets == (0, 480, 588)


def test_the_whole_is_the_part_of_all_its_tensors() -> None:
    part = WHOLE.part([tensor.name for tensor in WHOLE.tensors])
    assert part.numbers == WHOLE.numbers == tuple(range(8))
    for rank in (0, 1, 3):
        np.testing.assert_array_equal(part.table(rank), WHOLE.table(rank))
        np.testing.assert_array_equal(part.places(rank), WHOLE.places(rank))


def test_rows_of_a_tensor_keep_their_place_in_it_and_in_the_mask() -> None:
    (rows,) = WHOLE.part(["embedding"], {"embedding": (130, 20)}).tensors
    assert rows == TensorSpec("embedding", (20, 12), scale=2.0, mask_column=130, number=0, first_row=130)
    (column,) = WHOLE.part(["start"], {"start": (4, 5)}).tensors
    assert (column.shape, column.mask_column) == ((5,), 300)  # a vector is one row of its mask
    (unmasked,) = WHOLE.part(["head"], {"head": (4, 5)}).tensors
    assert unmasked.mask_column == -1


@pytest.mark.parametrize(("rank", "matrix", "kernel"), [(0, 129 * 40, 2 * 18), (1, 129, 2), (3, 129, 2)])
def test_signs_are_counted_in_rows_of_matrices_and_elements_of_all_else(rank: int, matrix: int, kernel: int) -> None:
    part = WHOLE.part(
        ["bias", "kernel", "head", "head_bias"],
        {"kernel": (2, 3), "head": (129, 171), "head_bias": (129, 171)},
    )
    assert part.places(rank).tolist() == [[2, 0], [3, kernel], [5, matrix], [6, 129]]


def test_a_column_is_counted_in_elements_at_every_rank() -> None:
    layout = ParameterLayout((TensorSpec("column", (8, 1)),)).part(["column"], {"column": (3, 5)})
    assert [layout.places(rank).tolist() for rank in (0, 1)] == [[[0, 3]], [[0, 3]]]


def test_a_part_of_a_part_is_a_part_of_the_whole() -> None:
    leaf = WHOLE.part(["head", "start"], {"head": (100, 200)})
    inner = leaf.part(["head"], {"head": (29, 171)})
    assert inner == WHOLE.part(["head"], {"head": (129, 171)})
    flat = np.arange(leaf.size, dtype=np.float32)
    assert leaf.intervals(inner) == [slice(29 * 40, 200 * 40)]
    assert leaf.row_intervals(inner) == [slice(29, 200)]
    assert flat[leaf.intervals(inner)[0]].size == inner.size


@pytest.mark.parametrize("name", PARTS)
def test_intervals_tell_where_a_part_lies_in_the_whole(name: str) -> None:
    flat, part = np.arange(WHOLE.size, dtype=np.float32), PARTS[name]
    found = np.concatenate([flat[interval] for interval in WHOLE.intervals(part)])
    np.testing.assert_array_equal(found, pieces(WHOLE, part, flat))
    rows = np.concatenate([WHOLE.row_lengths[interval] for interval in WHOLE.row_intervals(part)])
    np.testing.assert_array_equal(rows, part.row_lengths)


def test_rows_of_neighbours_are_one_interval() -> None:
    assert WHOLE.row_intervals(WHOLE) == [slice(0, WHOLE.row_lengths.size)]
    assert WHOLE.row_intervals(PARTS["stem"]) == [slice(0, 300), slice(340, 391)]


def test_a_part_says_which_of_its_rows_masks_bear_on() -> None:
    assert [PARTS[name].is_masked for name in PARTS] == [True, True, True, False]


def test_a_part_may_be_empty() -> None:
    empty = WHOLE.part([])
    assert (empty.size, empty.offsets, empty.row_lengths.size, WHOLE.intervals(empty)) == (0, (), 0, [])
    assert (empty.table(1).shape, empty.places(1).shape) == ((0, 5), (0, 2))


@pytest.mark.parametrize(
    ("names", "rows", "complaint"),
    [
        (["inner", "other", "another"], {}, "part: expected tensors of the layout, .* got another, other$"),
        (["inner"], {"head": (0, 2)}, "part: expected tensors of the layout, and rows of those, got head$"),
        (["head"], {"head": (0, 301)}, "rows of head: expected 2 or more of 300, got 301 from number 0 on"),
        (["head"], {"head": (-1, 5)}, "rows of head: expected 2 or more of 300, got 5 from number -1 on"),
        (["head"], {"head": (299, 2)}, "rows of head: .* got 2 from number 299 on"),
        (["head"], {"head": (5, 1)}, "rows of head: expected 2 or more of 300, got 1"),
        (["bias"], {"bias": (40, 0)}, "rows of bias: expected 1 or more of 40, got 0"),
    ],
)
def test_parts_that_cannot_be_are_refused(names: list[str], rows: dict[str, tuple[int, int]], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        WHOLE.part(names, rows)


def test_one_element_of_a_vector_is_a_part_and_a_number_has_no_rows() -> None:
    layout = ParameterLayout((TensorSpec("vector", (4,)), TensorSpec("number", ())))
    assert layout.part(["vector"], {"vector": (3, 1)}).places(1).tolist() == [[0, 3]]
    assert layout.part(["number"]).places(1).tolist() == [[1, 0]]
    with pytest.raises(ValueError, match="rows of number: expected 1 or more of 0, got 1"):
        layout.part(["number"], {"number": (0, 1)})


@pytest.mark.parametrize("find", [ParameterLayout.intervals, ParameterLayout.row_intervals])
def test_tensors_and_rows_that_a_layout_does_not_hold_are_not_found(find: Find) -> None:
    leaf = PARTS["leaf"]
    for part, name in ((PARTS["root"], "inner"), (PARTS["shard"], "head"), (WHOLE, "inner")):
        with pytest.raises(ValueError, match=f"part: expected tensors of the layout, got {name} with rows that it"):
            find(leaf, part)
    longer = ParameterLayout((msgspec.structs.replace(leaf.tensors[1], shape=(172, 40)),))
    with pytest.raises(ValueError, match="got head with rows"):
        find(leaf, longer)


def test_a_part_travels_as_data() -> None:
    for part in PARTS.values():
        assert msgspec.json.decode(msgspec.json.encode(part), type=ParameterLayout) == part
