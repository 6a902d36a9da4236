"""What benchmarks/network report."""

from importlib.util import find_spec

import pytest

from tests.benchmarks.conftest import ReadJson

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")


@pytest.mark.long
@needs_torch
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


def test_a_server_is_measured_with_few_and_with_more_and_behind_relays(read_json: ReadJson) -> None:
    report = read_json("swarm", "--volunteers", "1", "6", "--relays", "0", "1", "--steps", "3")
    costs = report["costs"]
    assert [(cost["volunteers"], cost["relays"]) for cost in costs] == [(1, 0), (1, 1), (6, 0), (6, 1)]
    assert costs[0]["relay_ms"] == costs[2]["relay_ms"] == 0.0
    for cost in costs:
        assert 0 < cost["step_ms"]["low"] <= cost["step_ms"]["median"] <= cost["step_ms"]["high"]
        assert cost["server_ms"] >= 0.0
        assert cost["evaluating"] == 0.0


def test_volunteers_that_compute_are_asked_how_much_of_their_time_they_do(read_json: ReadJson) -> None:
    (cost,) = read_json("swarm", "--volunteers", "2", "--steps", "3", "--member-ms", "2")["costs"]
    # Of 500 members a second that each can do; a step takes what a group takes at least.
    assert 0 < cost["members_per_s_each"] <= 500
    assert cost["evaluating"] == cost["members_per_s_each"] * 2e-3
    assert cost["step_ms"]["low"] >= 16 * 2 * 0.9
