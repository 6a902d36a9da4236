from itertools import pairwise
from pathlib import Path

import pytest

from tests.benchmarks.conftest import ReadJson, Run

REPLAYED = ("--spaces", "weights", "--exchange", "replay")


@pytest.fixture
def tiny(tmp_path: Path) -> tuple[str, ...]:
    """Flags of runs that take a second or two: 8 units learn that a follows b."""
    text = tmp_path / "alternating.txt"
    text.write_text("ab" * 5000)
    settings = (f"data={text}", "population-limit=128", "group-size=16", "learning-rate=0.02", "sigma=0.05")
    flags = ("--hidden-sizes", "8", "--targets", "0.3", "--trial-tokens-per-s", "1e5", "--tokens", "2e6")
    return (*flags, "--set", *settings, "time-per-step=30")


@pytest.mark.parametrize("space", ["weights", "activations"])
def test_two_volunteers_are_sooner_at_the_target_than_one(
    read_json: ReadJson, tiny: tuple[str, ...], space: str
) -> None:
    report = read_json("volunteers", *tiny, "--spaces", space, "--exchange", "sum", "--volunteers", "1", "2")
    one, two = report["cells"]
    assert [cell["volunteers"] for cell in (one, two)] == [1, 2]
    assert one["case"] == two["case"]
    assert one["case"]["settings"]["data"] == "alternating.txt"
    assert one["case"]["settings"]["exchange" if space == "weights" else "perturb"] in ("sum", "activations")
    assert one["case"]["trial_tokens_per_s"] == pytest.approx(1e5)
    assert one["case"]["costs"]["member_s"] == pytest.approx(16 / 1e5)
    for cell in (one, two):
        assert cell["members"] == 128
        assert 0 < cell["evaluating"] == pytest.approx(128 * 16 / 1e5 / cell["step_s"] / cell["volunteers"])
        assert min(cell["up_bytes_per_s"], cell["down_bytes_per_s"]) > 0
    # Trials take 20 ms of a step, the way and back 100 ms.
    assert 0.12 < one["step_s"] < 0.14
    assert two["step_s"] == pytest.approx(one["step_s"] - 0.01, abs=4e-3)
    assert two["seconds"] < one["seconds"]


def test_the_target_is_reached_between_two_looks(read_json: ReadJson, tiny: tuple[str, ...]) -> None:
    (cell,) = read_json("volunteers", *tiny, *REPLAYED, "--volunteers", "1")["cells"]
    looks = cell["looks"]
    assert all(look["validation_bits_per_character"] > 0.3 for look in looks[:-1])
    before, last = looks[-2:]
    share = (before["validation_bits_per_character"] - 0.3) / (
        before["validation_bits_per_character"] - last["validation_bits_per_character"]
    )
    assert cell["seconds"] == pytest.approx(before["seconds"] + share * (last["seconds"] - before["seconds"]))
    assert looks[0]["trial_tokens"] >= 1e4
    assert all(after["trial_tokens"] >= 1.1 * first["trial_tokens"] for first, after in pairwise(looks))


def test_people_get_a_table_of_runs_that_end_before_their_target(run_benchmark: Run, tiny: tuple[str, ...]) -> None:
    flags = (*REPLAYED, "--targets", "0", "--seconds", "1", "--volunteers", "3", "1")
    done = run_benchmark("volunteers", *tiny, *flags)
    assert done.returncode == 0, done.stderr
    rows = [line.split()[:3] for line in done.stdout.splitlines()[-2:]]
    assert rows == [["1", ">", "1"], ["3", ">", "1"]]


def test_each_size_needs_a_target(run_benchmark: Run) -> None:
    done = run_benchmark("volunteers", "--hidden-sizes", "8", "16", "--targets", "2.7")
    assert done.returncode == 2
    assert "expected a value for each of --hidden-sizes" in done.stderr
