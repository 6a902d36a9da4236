"""What benchmarks/kernels report."""

import pytest

import es_core
from tests.benchmarks.conftest import ReadJson, Run

TINY_KERNEL = ("--hidden", "8", "--population", "128", "--rounds", "2", "--sequence-length", "4")


def test_every_instruction_set_is_measured_beside_ours(read_json: ReadJson) -> None:
    report = read_json("kernel", *TINY_KERNEL, "--all-isas")
    names = [contestant["name"] for contestant in report["contestants"]]
    assert names[:3] == ["ours", "ours, int8", "ours, activations with gradient"]
    assert {f"ours, {isa}" for isa in es_core.supported_isas() if isa != es_core.current_isa()} <= set(names)
    for contestant in report["contestants"]:
        speed = contestant["million_tokens_per_s"]
        assert contestant["hidden_size"] == 8
        assert 0 < speed["low"] <= speed["median"] <= speed["high"]
    assert report["contestants"][0]["ours_is_faster_by"]["median"] == 1.0
    (update,) = report["updates"]
    assert min(update["estimate_ms"]["median"], update["adam_ms"]["median"]) > 0


def test_people_get_a_table(run_benchmark: Run) -> None:
    done = run_benchmark("kernel", *TINY_KERNEL)
    assert done.returncode == 0, done.stderr
    assert "million tokens per s" in done.stdout
    assert "sequence_length 4" in done.stdout


def test_costs_of_callbacks_and_of_a_status_are_reported(read_json: ReadJson) -> None:
    report = read_json("overheads", "--volunteers", "10", "--rounds", "2")
    assert [cost["what"] for cost in report["costs"]] == [
        "5 callbacks hear of a step",
        "a status of 10 volunteers, gathered",
        "a status of 10 volunteers, written",
    ]
    assert all(0.0 < cost["ms"]["low"] <= cost["ms"]["high"] for cost in report["costs"])


def test_parts_of_a_step_are_told_apart(read_json: ReadJson) -> None:
    report = read_json("step", "--hidden-size", "8", "--population-limit", "128", "--n-steps", "3")
    assert (report["hidden_size"], report["population_limit"]) == (8, 128)
    medians = {part["name"]: part["ms"]["median"] for part in report["parts"]}
    assert min(medians["trials"], medians["optimizer, both replicas"], medians["all else"]) > 0
    assert report["medians but trials, ms"] == pytest.approx(sum(medians.values()) - medians["trials"])
    assert "Muon's hidden matrices, both replicas" not in medians


def test_parts_of_a_step_as_a_run_chooses_it(read_json: ReadJson) -> None:
    report = read_json("step", "--chosen", "--hidden-size", "16", "--perturb", "activations", "--n-steps", "3")
    assert report["population_limit"] > 0
    assert report["group_size"] == 4
    assert {part["name"] for part in report["parts"]} >= {"trials", "Muon's hidden matrices, both replicas"}
