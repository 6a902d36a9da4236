from collections.abc import Callable
from typing import Any

import pytest

import es_core

ReadJson = Callable[..., dict[str, Any]]


def test_honest_kernels_are_compared_and_nobody_is_accused(read_json: ReadJson) -> None:
    rows = read_json("audits", "--audits", "20", "--hidden-sizes", "16")["rows"]
    n_others = len(es_core.supported_isas()) - 1
    assert len(rows) == 2 * (2 * n_others + 1)
    assert all(row["audits"] == 20 and row["greatest"] >= 0.0 for row in rows)
    assert not any(row["accused"] for row in rows if row["precision"] in ("float32", "int8"))


def test_honest_volunteers_of_a_graph_are_compared_and_nobody_is_accused(read_json: ReadJson) -> None:
    pytest.importorskip("torch")
    rows = read_json("graph_audits", "--audits", "16")["rows"]
    assert [row["model"] for row in rows] == ["perceptron", "convolutional", "transformer"]
    assert all(row["audits"] == 16 and 0.0 < row["greatest"] < 1.0 and not row["accused"] for row in rows)
