import sys
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest

Run = Callable[..., CompletedProcess[str]]
ReadJson = Callable[..., dict[str, Any]]

TINY = ("--sizes", "1e6", "--rounds", "2", "--members", "16")


@pytest.fixture(scope="module")
def size(read_json: ReadJson) -> dict[str, Any]:
    report = read_json("large", *TINY, "--threads", "1", "2")
    assert report["members"] == [16]
    (size,) = report["sizes"]
    assert isinstance(size, dict)
    return size


def test_each_part_is_measured_with_each_number_of_threads(size: dict[str, Any]) -> None:
    parts = [(part["name"], part["threads"]) for part in size["parts"]]
    assert len(set(parts)) == len(parts)
    steps = {f"{optimizer}: {what}" for optimizer in ("adam", "sgd") for what in ("step of 16 members", "digest")}
    once = {"one pass over the weights", "genesis", "noise of 16 members", "gradient estimate of 16 members"}
    for threads in (1, 2):
        assert steps | once <= {name for name, n in parts if n == threads}
    alone = {"adam: digest, BLAKE2b", "sgd: digest, BLAKE2b", "Snapshot: encode", "Snapshot: decode"}
    assert alone <= {name for name, n in parts if n == 1}
    assert not alone & {name for name, n in parts if n == 2}
    assert all(part["ms"]["median"] > 0 for part in size["parts"])


def test_passes_count_copies_of_the_weights(size: dict[str, Any]) -> None:
    one_pass = [part for part in size["parts"] if part["name"] == "one pass over the weights"]
    assert [part["passes"]["median"] for part in one_pass] == [1.0, 1.0]
    (step,) = (part for part in size["parts"] if (part["name"], part["threads"]) == ("adam: step of 16 members", 1))
    assert step["passes"]["median"] > 1


def test_noise_is_that_of_rows_and_columns(size: dict[str, Any]) -> None:
    width, vocabulary, blocks = 128, 4096, 3
    assert size["n_parameters"] == vocabulary * width + blocks * (12 * width**2 + 2 * width)
    assert size["noise_numbers"] == vocabulary + width + blocks * (4 + 2 + 5 + 5 + 2) * width
    assert size["weights_mib"] == 4 * size["n_parameters"] / 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak of one program")
def test_memory_holds_weights_estimate_and_moments(size: dict[str, Any]) -> None:
    peaks = {(memory["optimizer"], memory["threads"]): memory["peak_mib"] for memory in size["memory"]}
    assert set(peaks) == {(optimizer, threads) for optimizer in ("adam", "sgd") for threads in (1, 2)}
    assert 2 * size["weights_mib"] < peaks["sgd", 1] < 8 * size["weights_mib"]
    assert 4 * size["weights_mib"] < peaks["adam", 1] < 10 * size["weights_mib"]


def test_people_get_a_table(run_benchmark: Run) -> None:
    done = run_benchmark("large", *TINY, "--threads", "1")
    assert done.returncode == 0, done.stderr
    assert "1,114,880 parameters" in done.stdout
    assert "times the weights" in done.stdout


def test_help_names_the_flags(run_benchmark: Run) -> None:
    done = run_benchmark("large", "--help")
    assert done.returncode == 0
    assert "--huge" in done.stdout
