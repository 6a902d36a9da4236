from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

ReadJson = Callable[..., dict[str, Any]]


@pytest.mark.long
def test_a_crew_is_measured_beside_one_volunteer(read_json: ReadJson) -> None:
    report = read_json("crew", "--rounds", "1", "--steps", "1", "--members", "64", "--width", "128")
    alone, crew, direct = report["costs"]
    assert alone["digest"] == crew["digest"] == direct["digest"]
    assert alone["cut_bytes"] == 0.0
    assert crew["cut_bytes"] == crew["relayed_bytes"] == direct["cut_bytes"] == report["formula_bytes"]
    assert direct["relayed_bytes"] == 0.0
    assert report["formula_bytes"] == 4 * 128 * 32
    assert alone["share"] == 1.0
    more_ms = crew["volunteers_ms"] - alone["volunteers_ms"]
    assert crew["ns_a_byte"] == pytest.approx(1e6 * more_ms / (2 * report["formula_bytes"]))
