from typing import Any

import numpy as np
import pytest

from fedlearn.es.layout import TensorSpec
from fedlearn.tasks.task import flat_weights, layout_of
from tests.tasks.counting import CountingTask

TENSORS = {
    "layer.0.weight": np.ones((2, 3), dtype=np.float32),
    "layer.0.bias": np.full(2, 2.0, dtype=np.float32),
    "tokens.weight": np.full((5, 2), 3.0, dtype=np.float32),
    "places.weight": np.full((4, 2), 4.0, dtype=np.float32),
}


def test_tensors_lie_in_the_order_of_the_task_without_scales_and_masks_of_their_own() -> None:
    assert CountingTask(TENSORS).layout.tensors == tuple(TensorSpec(name, t.shape) for name, t in TENSORS.items())


def test_the_first_scale_whose_key_is_part_of_a_name_counts() -> None:
    task = CountingTask(TENSORS)
    task.scales = {"tokens": 2.0, "weight": 0.5, "tokens.weight": 7.0}
    assert [spec.scale for spec in task.layout.tensors] == [0.5, 1.0, 2.0, 0.5]


@pytest.mark.parametrize(("key", "value"), [("scales", {"wieght": 2.0}), ("reads", {"tokens": "token"})])
def test_a_key_that_means_no_tensor_is_refused_with_those_there_are(key: str, value: dict[str, Any]) -> None:
    task = CountingTask(TENSORS)
    setattr(task, key, value)
    (name,) = value
    with pytest.raises(ValueError, match=rf"^{key}: expected .* name, got '{name}'; tensors are layer.0.weight, layer"):
        _ = task.layout


def test_of_many_tensors_some_are_named() -> None:
    task = CountingTask({f"layer.{number}": np.ones(1, dtype=np.float32) for number in range(23)})
    task.scales = {"head": 2.0}
    with pytest.raises(ValueError, match=r"tensors are layer.0, .*, layer.19 and 3 more$"):
        _ = task.layout


def test_rows_that_data_name_have_mask_columns_one_behind_the_other() -> None:
    task = CountingTask(TENSORS)
    task.reads = {"places.weight": "place", "tokens.weight": "token"}
    assert [spec.mask_column for spec in task.layout.tensors] == [-1, -1, 0, 5]


def test_flat_weights_are_the_tensors_in_their_order() -> None:
    flat = flat_weights(TENSORS)
    assert flat.dtype == np.float32
    assert flat.tolist() == [1.0] * 6 + [2.0] * 2 + [3.0] * 10 + [4.0] * 8


def test_a_task_says_little_unless_it_has_more_to_say() -> None:
    task = CountingTask(TENSORS, batch_size=7)
    assert task.work_per_member == 7
    assert task.show(-1.5) == ("loss", -1.5)
    assert task.evaluate(flat_weights(TENSORS), threads=1) == {}
    assert task.report() == ""
    with pytest.raises(ValueError, match="a task of kind counting is code, which does not travel"):
        task.as_graph()


@pytest.mark.parametrize(
    ("shape", "count"), [((16, 4), 3), ((16, 4), -3), ((4, 15), -4), ((16,), 1), ((1, 16), 1), ((1, 16), -1)]
)
def test_a_tensor_without_so_many_hidden_matrices_is_refused(shape: tuple[int, ...], count: int) -> None:
    with pytest.raises(
        ValueError, match=r"hidden: expected a divisor of the rows of w \[.*\], or minus one of its columns, got"
    ):
        layout_of({"w": shape}, {}, {}, {"w": count})
    assert layout_of({"w": (16, 4)}, {}, {}, {"w": 4}).tensors[0].hidden_sides == (4, 4)
    assert layout_of({"w": (4, 16)}, {}, {}, {"w": -2}).tensors[0].hidden_sides == (8, 4)
