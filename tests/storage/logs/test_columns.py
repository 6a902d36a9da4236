from typing import Any

import msgspec
import numpy as np

from fedlearn.storage.logs.columns import PLAIN, columns_of
from fedlearn.storage.logs.metrics import StepMetrics
from tests.steps import step_metrics

FIRST = step_metrics(3, bytes_in=10, bytes_out=20, digest="00", time=5.0, elapsed_s=1.5)


def changed(**changes: Any) -> StepMetrics:  # noqa: ANN401 (values of any field)
    return msgspec.structs.replace(FIRST, **changes)


def test_each_figure_has_a_column_and_what_is_missing_is_nan() -> None:
    second = changed(step=4, elapsed_s=2.5, loss=None, shown={}, validation={"bits_per_character": 3.5})
    columns = columns_of([FIRST, second])
    assert columns["step"].tolist() == [3, 4]
    np.testing.assert_array_equal(columns["loss"], [2.5, np.nan])
    np.testing.assert_array_equal(columns["bits_per_character"], [3.6, np.nan])
    np.testing.assert_array_equal(columns["validation_bits_per_character"], [np.nan, 3.5])
    assert list(columns)[: len(PLAIN)] == list(PLAIN)
    assert columns["elapsed_s"].tolist() == [1.5, 2.5]
    assert columns["digest"].tolist() == ["00", "00"]


def test_step_that_was_repeated_counts_as_it_went_at_last() -> None:
    columns = columns_of([FIRST, changed(step=5), changed(step=4, loss=9.0), changed(step=4, loss=1.0)])
    assert columns["step"].tolist() == [3, 4, 5]
    assert columns["loss"].tolist() == [2.5, 1.0, 2.5]


def test_run_without_a_step_has_empty_columns() -> None:
    assert {name: len(column) for name, column in columns_of([]).items()} == dict.fromkeys(PLAIN, 0)
