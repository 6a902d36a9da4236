from collections.abc import Callable
from importlib.util import find_spec
from subprocess import CompletedProcess
from typing import Any

import es_core

Run = Callable[..., CompletedProcess[str]]
ReadJson = Callable[..., dict[str, Any]]

TINY = ("--hidden", "8", "--population", "128", "--rounds", "2", "--sequence-length", "4")
SMALL_POPULATIONS = ("--populations", "64", "6400")


def test_report_is_one_object_with_the_documented_keys(read_json: ReadJson) -> None:
    report = read_json("kernel", *TINY, "--all-isas", *SMALL_POPULATIONS)
    assert set(report) == {
        "benchmark",
        "machine",
        "threads",
        "rounds",
        "vocab_size",
        "sequence_length",
        "group_size",
        "rank",
        "torch",
        "product_peak_gflops",
        "fma_peak_gflops",
        "sizes",
        "scaling",
    }
    assert [memory["population"] for memory in report["scaling"]["memory"]] == [64, 6400]
    (size,) = report["sizes"]
    assert (size["hidden_size"], size["population"]) == (8, 128)
    names = [contestant["name"] for contestant in size["contestants"]]
    assert names[0] == "ours"
    documents = [name for name in names if name.startswith("ours, documents")]
    assert documents == ["ours, documents", "ours, documents, int8", "ours, documents, activations"]
    assert len([name for name in names if name.startswith("ours")]) == len(es_core.supported_isas()) + 2 + len(
        documents
    )
    assert names[1:3] == ["ours, int8", "ours, activations with gradient"]
    assert len([name for name in names if name.startswith("PyTorch")]) == (4 if find_spec("torch") else 0)
    assert (report["torch"] is not None) == (find_spec("torch") is not None)
    for contestant in size["contestants"]:
        assert set(contestant) == {
            "name",
            "million_tokens_per_s",
            "share_of_product_peak",
            "share_of_fma_peak",
            "ours_is_faster_by",
        }
        speed = contestant["million_tokens_per_s"]
        assert 0 < speed["low"] <= speed["median"] <= speed["high"]
    assert set(size["update"]) == {
        "estimate_ms",
        "adam_ms",
        "token_evaluations_per_member",
        "ps_per_member_and_parameter",
        "share_of_dot_product_peak",
    }


def test_people_get_a_table(run_benchmark: Run) -> None:
    done = run_benchmark("kernel", *TINY, "--no-scaling")
    assert done.returncode == 0, done.stderr
    assert "hidden 8, population 128" in done.stdout
    assert ("PyTorch" if find_spec("torch") else "not installed") in done.stdout


def test_help_names_the_flags(run_benchmark: Run) -> None:
    done = run_benchmark("kernel", "--help")
    assert done.returncode == 0
    assert "--all-isas" in done.stdout
