from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import es_core

Run = Callable[..., CompletedProcess[str]]
ReadJson = Callable[..., dict[str, Any]]

TINY = ("--hidden", "8", "--population", "128", "--rounds", "2", "--sequence-length", "4")


def test_every_instruction_set_is_measured_beside_ours(read_json: ReadJson) -> None:
    report = read_json("kernel", *TINY, "--all-isas")
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
    done = run_benchmark("kernel", *TINY)
    assert done.returncode == 0, done.stderr
    assert "million tokens per s" in done.stdout
    assert "sequence_length 4" in done.stdout
