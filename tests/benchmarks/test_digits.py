from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

ReadJson = Callable[..., dict[str, Any]]


def test_both_networks_are_trained_through_a_server(read_json: ReadJson) -> None:
    rows = read_json("digits", "--seconds", "2")["rows"]
    assert [row["network"] for row in rows] == ["mlp", "cnn"]
    assert all(row["steps"] >= 1 and 0.05 < row["accuracy"] <= 1 for row in rows)
