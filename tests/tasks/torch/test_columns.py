from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset  # noqa: E402

from fedlearn.tasks.torch.columns import as_columns  # noqa: E402
from fedlearn.tasks.torch.supervised import supervised  # noqa: E402

X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.array([0, 1, 1, 0])


class Pairs(Dataset[Any]):
    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> Any:  # noqa: ANN401
        return X[index], Y[index]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return zip(X, Y, strict=True)


def no_loss(_model: object, _rows: object) -> float:
    return 0.0


def of_pairs(data: Any) -> dict[str, Tensor]:  # noqa: ANN401
    """What the messages tell to do."""
    x, y = torch.utils.data.default_collate([data[i] for i in range(len(data))])
    return {"x": x, "y": y}


def of_loader(data: Any) -> dict[str, Tensor]:  # noqa: ANN401
    x, y = map(torch.cat, zip(*data, strict=True))
    return {"x": x, "y": y}


def assert_columns(data: object) -> None:
    columns = as_columns(data, "data")
    np.testing.assert_array_equal(columns["x"], X)
    np.testing.assert_array_equal(columns["y"], Y)
    assert columns["x"].dtype == np.float32
    assert columns["y"].dtype.kind == "i"


def test_tensors_and_lists_are_columns() -> None:
    assert_columns({"x": torch.from_numpy(X), "y": Y.tolist()})
    assert_columns({"x": list(torch.from_numpy(X)), "y": torch.from_numpy(Y)})


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_floats_are_kept_as_float32(dtype: Any) -> None:  # noqa: ANN401 (a torch.dtype)
    assert_columns({"x": torch.from_numpy(X).to(dtype).requires_grad_(True), "y": Y})


def test_long_doubles_are_kept_as_float32() -> None:
    assert_columns({"x": X.astype(np.longdouble), "y": Y})


def test_arrays_in_a_column_of_objects_are_its_rows() -> None:
    rows = np.empty(4, dtype=object)
    rows[:] = list(X)
    assert_columns({"x": rows, "y": Y})


class Frame:
    """What a data frame of pandas has of a dictionary."""

    def items(self) -> Any:  # noqa: ANN401
        return iter([("x", X), ("y", Y)])


def test_a_data_frame_has_columns() -> None:
    assert_columns(Frame())


def test_a_data_set_of_hugging_face_has_columns_in_its_format() -> None:
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"x": X, "y": Y, "text": ["a", "b", "c", "d"]})
    assert_columns(data.remove_columns("text"))
    assert_columns(data.with_format("torch", columns=["x", "y"]))
    with pytest.raises(ValueError, match="expected numbers in the column 'text', got "):
        as_columns(data, "data")
    with pytest.raises(ValueError, match=r"expected columns, got data sets; give one of them, such as data\['train'\]"):
        as_columns(datasets.DatasetDict({"train": data}), "data")


def test_what_messages_advise_makes_columns() -> None:
    assert_columns(of_pairs(Pairs()))
    assert_columns(of_pairs(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))))
    assert_columns(of_loader(DataLoader(Pairs(), batch_size=3)))


@pytest.mark.parametrize(
    ("data", "received", "remedy"),
    [
        (Pairs(), "Pairs", "default_collate([held_out[i] for i in range(len(held_out))]) makes two"),
        (Stream(), "Stream", "default_collate(list(held_out)) makes two of it"),
        (DataLoader(Pairs()), "DataLoader", "x, y = map(torch.cat, zip(*held_out)) makes two of it"),
        ((X, Y), "tuple", "name them, such as {'x': held_out[0], 'y': held_out[1]}"),
        (X, "ndarray", "name it, such as {'x': held_out}"),
        ([{"x": 1.0}], "list", "{name: [row[name] for row in held_out] for name in held_out[0]}"),
        (3, "int", "the loss reads them by these names"),
    ],
    ids=["data set", "stream", "loader", "tuple", "array", "rows", "number"],
)
def test_data_without_names_of_columns_is_refused_with_its_remedy(data: object, received: str, remedy: str) -> None:
    with pytest.raises(ValueError, match="held_out: expected columns by name") as raised:
        as_columns(data, "held_out")
    assert f", got {received}; " in str(raised.value)
    assert remedy in str(raised.value)


def test_names_that_are_no_text_are_refused() -> None:
    with pytest.raises(ValueError, match="data: expected names of columns as text, got 0; name it '0'"):
        as_columns({0: X}, "data")


@pytest.mark.parametrize(
    "column",
    [
        [[1.0, 2.0], [3.0]],
        [np.zeros(2), np.zeros(3)],
        np.array([[1.0, 2.0], [3.0]], dtype=object),
        torch.nested.as_nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged),
    ],
    ids=["lists", "arrays", "objects", "nested tensor"],
)
def test_rows_of_several_lengths_are_refused(column: object) -> None:
    with pytest.raises(ValueError, match=r"data: expected rows of one shape in the column 'x', got several; pad them"):
        as_columns({"x": column}, "data")


def test_masked_numbers_are_refused_and_a_mask_of_nothing_is_none() -> None:
    column = np.ma.masked_invalid(np.array([1.0, np.nan, 3.0, np.nan]))
    with pytest.raises(ValueError, match=r"data: expected a number in each row of the column 'x', got 2 masked ones"):
        as_columns({"x": column}, "data")
    assert as_columns({"x": column[:1]}, "data")["x"].tolist() == [1.0]


def test_sparse_column_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected a dense tensor as the column 'x', .*; give its to_dense\(\)"):
        as_columns({"x": torch.eye(3).to_sparse()}, "data")


def test_column_of_one_number_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a value for each row in the column 'x', got the number 3"):
        as_columns({"x": 3, "y": Y}, "data")


@pytest.mark.parametrize("column", [["cat", "dog"], [b"cat", b"dog"], [None, 1.0]])
def test_a_column_that_holds_no_numbers_is_refused(column: list[Any]) -> None:
    with pytest.raises(
        ValueError, match=r"data: expected numbers in the column 'y', got \S+ such as .*; make numbers of"
    ):
        as_columns({"x": np.zeros((2, 3)), "y": column}, "data")


@pytest.mark.parametrize("number", [np.nan, -np.inf])
@pytest.mark.parametrize("what", ["data", "held_out"])
def test_column_with_a_number_that_is_not_finite_is_warned_of(what: str, number: float) -> None:
    given = {"data": {"x": np.zeros((40, 6))}, "held_out": {"x": np.zeros((10, 6))}}
    given[what]["x"][[3, 5], 2:4] = number
    expected = (
        f"^{what}: expected finite numbers in the column 'x', got {number} in 2 of {len(given[what]['x'])} rows, "
    )
    with pytest.warns(RuntimeWarning, match=f"{expected}first in row 3;") as warned:
        supervised(torch.nn.Module, no_loss, given["data"], held_out=given["held_out"])
    assert [warning.filename for warning in warned] == [__file__]
