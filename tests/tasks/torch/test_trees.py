import numpy as np
import pytest
import torch

from fedlearn.tasks.torch.trees import as_tensors, between, joined, leaves, pick, repeated, stacked

TREE = {"a": torch.arange(6).view(3, 2), "b": [torch.arange(3), "text", None]}


def test_parts_of_tensors_are_taken_and_everything_else_left() -> None:
    assert pick(TREE, 1)["a"].tolist() == [2, 3]
    assert pick(TREE, 1)["b"][1:] == ["text", None]
    assert between(TREE, 1, 3)["b"][0].tolist() == [1, 2]
    assert repeated(TREE, 2)["b"][0].tolist() == [0, 0, 1, 1, 2, 2]


def test_results_become_tensors_of_members() -> None:
    both = stacked([(1.5, torch.zeros(2)), (2.5, torch.ones(2))])
    assert both[0].tolist() == [1.5, 2.5]
    assert joined([both, both])[1].shape == (4, 2)
    assert joined([both]) is both
    assert [leaf.shape for leaf in leaves(both)] == [(2,), (2, 2)]


@pytest.mark.parametrize("result", [None, "text", object()])
def test_results_that_are_no_numbers_are_an_error(result: object) -> None:
    with pytest.raises(TypeError, match=f"expected tensors or numbers .*, got {type(result).__name__}"):
        stacked([result, result])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("float64", torch.float32), ("float32", torch.float32), ("float16", torch.float16), ("int32", torch.int64),
        ("uint16", torch.int64), ("int8", torch.int64), ("uint8", torch.uint8), ("bool", torch.bool),
    ],
)  # fmt: skip
def test_arrays_become_tensors_that_modules_take(given: str, expected: torch.dtype) -> None:
    array = np.ones((2, 3), dtype=given)
    array.flags.writeable = False
    tensor = as_tensors({"x": array}, torch.device("cpu"))["x"]
    assert tensor.dtype == expected
    assert tensor.tolist() == array.tolist()
    assert as_tensors(["text", tensor], torch.device("cpu")) == ["text", tensor]
