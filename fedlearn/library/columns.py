"""A run's metrics as columns."""

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlearn.storage.metrics import StepMetrics, each_once

Columns = dict[str, NDArray[Any]]
"""Arrays [steps] by name; NaN where a step has no value."""

PLAIN = ("step", "loss", "members", "work_per_s", "work", "volunteers", "bytes_in", "bytes_out", "time", "elapsed_s")


def columns_of(metrics: Iterable[StepMetrics]) -> Columns:
    """A column for each figure of a step, and `validation_...` for those of held-out data.

    A step that was repeated after a crash counts once, with its last figures.
    """
    rows = each_once(metrics)
    shown = dict.fromkeys(name for row in rows for name in row.shown)
    validated = dict.fromkeys(name for row in rows for name in row.validation)
    columns = {name: np.array([_number(getattr(row, name)) for row in rows]) for name in PLAIN}
    columns |= {name: np.array([row.shown.get(name, np.nan) for row in rows]) for name in shown}
    columns |= {
        f"validation_{name}": np.array([row.validation.get(name, np.nan) for row in rows]) for name in validated
    }
    return columns


def table_of(columns: Columns) -> Any:  # noqa: ANN401 (pandas may not be here)
    """A pandas DataFrame where pandas is installed, else the columns."""
    if find_spec("pandas") is None:
        return columns
    import pandas

    return pandas.DataFrame(columns)


def _number(value: float | None) -> float:
    return np.nan if value is None else value
