from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

ReadJson = Callable[..., dict[str, Any]]


@pytest.mark.long
def test_network_is_trained_through_a_server(read_json: ReadJson) -> None:
    (row,) = read_json("digits", "--seconds", "1", "--networks", "mlp")["rows"]
    assert row["network"] == "mlp"
    assert row["steps"] >= 1
    assert 0.05 < row["accuracy"] <= 1
