"""A run's metrics as columns, for tables of all kinds."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlearn.storage.logs.metrics import StepMetrics, each_once

Columns = dict[str, NDArray[Any]]
"""Arrays [steps] by name; NaN where a step has no value."""

_BY_NAME = {"shown": "", "validation": "validation_"}
"""Fields of a line of metrics that hold figures by name, with the prefixes of their columns."""

PLAIN = tuple(field for field in StepMetrics.__struct_fields__ if field not in (*_BY_NAME, "relayed", "kinds"))


def columns_of(metrics: Iterable[StepMetrics]) -> Columns:
    """A column for each figure of a step, and `validation_...` for those of held-out data.

    A step that was repeated after a crash counts once, with its last figures.
    """
    rows = each_once(metrics)
    columns = {name: np.array([_present(getattr(row, name)) for row in rows]) for name in PLAIN}
    for field, prefix in _BY_NAME.items():
        figures = [getattr(row, field) for row in rows]
        for name in sorted({name for one in figures for name in one}):
            columns[prefix + name] = np.array([one.get(name, np.nan) for one in figures])
    return columns


def _present(value: object) -> object:
    return np.nan if value is None else value
