from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

Run = Callable[..., CompletedProcess[str]]
ReadJson = Callable[..., dict[str, Any]]

TINY = ("--seconds", "0.2", "--threads", "1", "--hidden-size", "8", "--population-limit", "128")


@pytest.fixture
def alternating_text(tmp_path: Path) -> str:
    path = tmp_path / "alternating.txt"
    path.write_text("ab" * 5000)
    return str(path)


def test_report_is_one_object_with_the_documented_keys(read_json: ReadJson, alternating_text: str) -> None:
    report = read_json("learning", "--data", alternating_text, *TINY)
    assert set(report) == {
        "benchmark",
        "machine",
        "config",
        "looks",
        "final_bits_per_character",
        "trial_tokens_per_s",
        "target_bits_per_character",
        "baselines_bits_per_character",
    }
    looks = report["looks"]
    assert [set(look) for look in looks] == 11 * [{"seconds", "steps", "trial_tokens", "validation_bits_per_character"}]
    assert looks[0]["steps"] == 0
    assert looks[-1]["seconds"] >= 0.2
    assert looks[-1]["trial_tokens"] == looks[-1]["steps"] * 128 * 16
    assert report["final_bits_per_character"] == looks[-1]["validation_bits_per_character"]
    assert report["final_bits_per_character"] < looks[0]["validation_bits_per_character"]


def test_baselines_know_a_text_that_alternates(read_json: ReadJson, alternating_text: str) -> None:
    baselines = read_json("learning", "--data", alternating_text, *TINY)["baselines_bits_per_character"]
    assert baselines["unigram"] == pytest.approx(1.0, abs=0.01)
    assert baselines["bigram"] == pytest.approx(0.0, abs=0.01)
    assert baselines["trigram"] == pytest.approx(0.0, abs=0.01)


def test_people_get_a_table(run_benchmark: Run, alternating_text: str) -> None:
    done = run_benchmark("learning", "--data", alternating_text, *TINY)
    assert done.returncode == 0, done.stderr
    assert "bits per character" in done.stdout


def test_absent_file_is_named(run_benchmark: Run, tmp_path: Path) -> None:
    absent = str(tmp_path / "absent.txt")
    done = run_benchmark("learning", "--data", absent, *TINY)
    assert done.returncode == 1
    assert done.stdout == ""
    assert absent in done.stderr
    assert "Traceback" not in done.stderr


def test_help_names_settings_of_the_run(run_benchmark: Run) -> None:
    done = run_benchmark("learning", "--help")
    assert done.returncode == 0
    assert "--seconds" in done.stdout
    assert "--hidden-size" in done.stdout
