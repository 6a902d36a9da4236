import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.tasks.blocks import Columns, group_words, row_numbers
from fedlearn.tasks.row_masks import RowReader
from tests.run_folders import spanning

WORDS, PLACES, ROWS = 7, 4, 30
BATCH_SIZE = 2
LAYOUT = ParameterLayout(
    (
        TensorSpec("words", (WORDS, 3), mask_column=0),
        TensorSpec("head", (5, 3)),
        TensorSpec("places", (PLACES, 2), mask_column=WORDS),
        TensorSpec("bias", (5,)),
    )
)
READS = {"words": "tokens", "places": "place"}
DATA: Columns = {
    "tokens": np.random.default_rng(0).integers(0, WORDS, (ROWS, 3)),
    "place": np.random.default_rng(1).integers(0, PLACES, ROWS).astype(np.uint8),
    "label": np.zeros(ROWS),
}


def reader(reads: dict[str, str] | None = None, *, layout: ParameterLayout = LAYOUT) -> RowReader:
    return RowReader(layout, READS if reads is None else reads, batch_size=BATCH_SIZE, seed=5)


@given(st.integers(0, 10**6), st.integers(0, 2**40))
def test_a_mask_names_the_rows_that_the_groups_data_name_and_no_others(step: int, group: int) -> None:
    mask = reader().row_masks(spanning((4 * group, 4), step=step), DATA)
    (rows,) = row_numbers(group_words(5, step, group, 1, BATCH_SIZE), ROWS)
    words, places = set(DATA["tokens"][rows].reshape(-1).tolist()), set(DATA["place"][rows].tolist())
    assert mask is not None
    assert mask.dtype == np.uint8
    assert mask.tolist() == [[*(int(row in words) for row in range(WORDS)), *(int(p in places) for p in range(PLACES))]]


def test_masks_follow_the_groups_of_the_spans() -> None:
    together = reader().row_masks(spanning((8, 8), (60, 12), step=9), DATA)
    apart = [reader().row_masks(spanning((first, 4), step=9), DATA) for first in (8, 12, 60, 64, 68)]
    assert together is not None
    np.testing.assert_array_equal(together, np.concatenate([mask for mask in apart if mask is not None]))
    assert len(np.unique(together, axis=0)) > 1


def test_a_task_that_reads_nothing_has_no_masks() -> None:
    assert reader({}).row_masks(spanning((8, 8), step=9), DATA) is None
    assert reader({}).row_masks(spanning((8, 8), step=9), {}) is None


def test_an_update_without_members_has_no_masks() -> None:
    assert reader().row_masks(spanning(step=9), DATA) is None


@pytest.mark.parametrize("name", ["missing", "bias"])
def test_only_matrices_that_are_learned_have_rows_to_read(name: str) -> None:
    with pytest.raises(ValueError, match=f"reads: expected names of matrices that are trained, got '{name}'"):
        reader({name: "tokens"})


@pytest.mark.parametrize("wrong", [-1, WORDS])
def test_a_row_that_the_tensor_does_not_have_is_refused(wrong: int) -> None:
    data = {**DATA, "tokens": np.full((ROWS, 3), wrong)}
    with pytest.raises(
        ValueError, match=f"reads: expected numbers of the 7 rows of words in column 'tokens', got {wrong} to {wrong}"
    ):
        reader().row_masks(spanning((8, 8), step=9), data)


def test_a_column_that_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match="data: expected a column 'place', got label, tokens"):
        reader().row_masks(spanning((8, 8), step=9), {name: DATA[name] for name in ("tokens", "label")})


def test_two_tensors_may_read_one_column() -> None:
    twice = ParameterLayout((LAYOUT.tensors[0], TensorSpec("again", (WORDS, 2), mask_column=WORDS)))
    mask = reader({"words": "tokens", "again": "tokens"}, layout=twice).row_masks(spanning((8, 8), step=9), DATA)
    assert mask is not None
    np.testing.assert_array_equal(mask[:, :WORDS], mask[:, WORDS:])


def test_masks_do_not_depend_on_the_order_in_which_tensors_are_named() -> None:
    update = spanning((8, 8), step=9)
    np.testing.assert_array_equal(
        reader(dict(reversed(READS.items()))).row_masks(update, DATA), reader().row_masks(update, DATA)
    )
