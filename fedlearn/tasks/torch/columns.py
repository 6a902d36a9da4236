"""Columns of data as people hold them: arrays, tensors and lists by name, data frames, data sets of Hugging Face."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

ROW_TYPES = (list, tuple, np.ndarray, Tensor)
"""What a row may be in a column of Python objects, as in a data frame."""


def as_columns(data: object, what: str) -> dict[str, NDArray[Any]]:
    """The columns as arrays of numbers; `what` is the name of the argument that they are.

    Raises:
        ValueError: they are no columns of numbers by name, differ in length, or there are none.
    """
    columns = {name: _as_column(column, what, name) for name, column in _by_name(data, what).items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if not lengths or len(set(lengths.values())) > 1 or 0 in lengths.values():
        raise ValueError(f"{what}: expected columns of one length above 0, got lengths {lengths}")
    return columns


def warn_of_gaps(columns: Mapping[str, NDArray[Any]], what: str) -> None:
    """Warns of columns with numbers that are not finite; it is no error, since a loss may leave them out by a mask."""
    for name, column in columns.items():
        if column.dtype.kind not in "fc" or (is_finite := np.isfinite(column)).all():
            continue
        rows = np.flatnonzero(~is_finite.reshape(len(column), -1).all(axis=1))
        warnings.warn(
            f"{what}: expected finite numbers in the column {name!r}, got {column[~is_finite][0]} in {len(rows)} of "
            f"{len(column)} rows, first in row {rows[0]}; unless the loss and the metrics leave them out, members that "
            "meet them do not count and metrics are nan: fill them in, or take those rows out",
            RuntimeWarning,
            stacklevel=3,
        )


def _by_name(data: Any, what: str) -> dict[str, Any]:  # noqa: ANN401 (whatever a user holds)
    """The columns of whatever has some by name, such as a data frame."""
    if _is_of_hugging_face(data):  # in the format that it was given, or else as arrays
        data = (data if data.format["type"] else data.with_format("numpy"))[:]
    if not hasattr(data, "items"):
        raise ValueError(
            f"{what}: expected columns by name, such as {{'x': inputs, 'y': targets}}, got {type(data).__name__}; "
            f"{_remedy(data, what)}"
        )
    columns = dict(data.items())
    for name, column in columns.items():
        if not isinstance(name, str):
            raise ValueError(f"{what}: expected names of columns as text, got {name!r}; name it {str(name)!r}")
        if _is_of_hugging_face(column):
            raise ValueError(f"{what}: expected columns, got data sets; give one of them, such as {what}[{name!r}]")
    return columns


def _is_of_hugging_face(data: object) -> bool:
    """Whether this is a `datasets.Dataset`, whose package need not be there."""
    return all(hasattr(data, name) for name in ("column_names", "format", "with_format", "__getitem__"))


def _remedy(data: object, what: str) -> str:
    """What makes columns of data that has none by name."""
    if isinstance(data, DataLoader):
        return f"where its batches are pairs, x, y = map(torch.cat, zip(*{what})) makes two of it"
    if isinstance(data, Dataset):
        rows = f"[{what}[i] for i in range(len({what}))]" if hasattr(data, "__len__") else f"list({what})"
        return f"where its rows are pairs, x, y = torch.utils.data.default_collate({rows}) makes two of it"
    if isinstance(data, np.ndarray | Tensor):
        return f"name it, such as {{'x': {what}}}"
    if isinstance(data, list) and data and isinstance(data[0], Mapping):
        return f"turn its rows round: {{name: [row[name] for row in {what}] for name in {what}[0]}}"
    if isinstance(data, list | tuple):
        return f"name them, such as {{'x': {what}[0], 'y': {what}[1]}}"
    return "the loss reads them by these names"


def _as_column(column: object, what: str, name: str) -> NDArray[Any]:
    """The column as an array of a type that PyTorch has, too; float32 stands for float64 and bfloat16."""
    if isinstance(column, np.ma.MaskedArray) and column.mask.any():
        raise ValueError(
            f"{what}: expected a number in each row of the column {name!r}, got {column.mask.sum()} masked ones; fill "
            "them in, as by its filled(0), and give the mask as a column of its own"
        )
    try:
        array = _of_tensor(column, what, name) if isinstance(column, Tensor) else np.asarray(column)
        if array.dtype == object and array.ndim == 1 and len(array) and isinstance(array[0], ROW_TYPES):
            array = np.asarray(list(array))
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise _ragged(what, name) from None
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.dtype.kind not in "biufc":
        raise ValueError(
            f"{what}: expected numbers in the column {name!r}, got {array.dtype.name} such as "
            f"{str(array.flat[0])[:40]!r}; make numbers of them first, such as a token or class each"
        )
    if array.ndim == 0:
        raise ValueError(f"{what}: expected a value for each row in the column {name!r}, got the number {array}")
    return array.astype(np.float32) if array.dtype.kind == "f" and array.dtype.itemsize >= 8 else array


def _of_tensor(column: Tensor, what: str, name: str) -> NDArray[Any]:
    if column.is_nested:
        raise _ragged(what, name)
    if column.layout is not torch.strided:
        raise ValueError(
            f"{what}: expected a dense tensor as the column {name!r}, got one of {column.layout}; give its to_dense()"
        )
    column = column.detach().cpu()
    has_no_twin = column.is_floating_point() and column.dtype not in (torch.float16, torch.float32, torch.float64)
    array: NDArray[Any] = (column.float() if has_no_twin else column).numpy()
    return array


def _ragged(what: str, name: str) -> ValueError:
    return ValueError(
        f"{what}: expected rows of one shape in the column {name!r}, got several; pad them to the longest, as by "
        "torch.nn.utils.rnn.pad_sequence, and give their lengths as a column of its own"
    )
