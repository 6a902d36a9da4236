import sys
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest

Run = Callable[..., CompletedProcess[str]]
ReadJson = Callable[..., dict[str, Any]]

TINY = ("--hidden", "8", "--rounds", "2")


def test_two_threads_are_compared_with_one(read_json: ReadJson) -> None:
    report = read_json("scaling", *TINY, "--threads", "2", "--populations", "64")
    assert report["threads"] == 2
    (size,) = report["speedups"]
    assert (size["hidden_size"], size["population"]) == (8, 4096)
    assert 0 < size["estimate"]["low"] <= size["estimate"]["median"] <= size["estimate"]["high"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak of one program")
def test_memory_is_that_of_a_process_which_held_the_population(read_json: ReadJson) -> None:
    report = read_json("scaling", *TINY, "--threads", "1", "--populations", "64", "2000000")
    assert report["speedups"] == []
    small, large = report["memory"]
    losses_mib = 4 * large["population"] / 2**20
    assert small["peak_mib"] + losses_mib < large["peak_mib"] < small["peak_mib"] + 5 * losses_mib


def test_people_get_a_table(run_benchmark: Run) -> None:
    done = run_benchmark("scaling", *TINY, "--threads", "2", "--populations", "64")
    assert done.returncode == 0, done.stderr
    assert "2 threads over one" in done.stdout
    assert "64 members" in done.stdout
