import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

Run = Callable[..., CompletedProcess[str]]
ReadJson = Callable[..., dict[str, Any]]

CHECKOUT = str(Path(__file__).parents[2])
TINY = ("--hidden-size", "8", "--population-limit", "128", "--steps", "30", "--rounds", "1")


def test_this_version_is_compared_with_itself(read_json: ReadJson) -> None:
    report = read_json("versions", CHECKOUT, *TINY)
    assert (report["rounds"], report["steps"]) == (1, 30)
    assert [figure["name"] for figure in report["figures"]] == ["median step", "quickest steps", "processor"]
    for figure in report["figures"]:
        assert figure["this_ms"]["median"] > 0
        assert figure["other_ms"]["median"] > 0
        expected = figure["this_ms"]["median"] / figure["other_ms"]["median"]
        assert figure["this_over_other"]["median"] == pytest.approx(expected)


def test_people_get_a_table(run_benchmark: Run) -> None:
    done = run_benchmark("versions", CHECKOUT, *TINY, "--perturb", "activations")
    assert done.returncode == 0, done.stderr
    assert "this / other" in done.stdout
    assert "processor" in done.stdout


def test_checkout_that_is_not_set_up_is_refused(run_benchmark: Run, tmp_path: Path) -> None:
    done = run_benchmark("versions", str(tmp_path), *TINY)
    assert done.returncode == 1
    assert "expected the Python of a checkout that is set up" in done.stderr


def test_server_that_fails_is_quoted(run_benchmark: Run) -> None:
    done = run_benchmark("versions", CHECKOUT, *TINY, "--data", "absent.txt")
    assert done.returncode == 1
    assert "absent.txt" in done.stderr


OTHER_SERVER = """
import json, pathlib, sys, time
folder = pathlib.Path(sys.argv[sys.argv.index("--runs") + 1], "1")
folder.mkdir()
for step in range(30):
    while time.process_time() < 0.02 * (step + 1):
        pass
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"loss": 1.0, "time": time.time()}) + "\\n")
"""


def set_up(checkout: Path, server: str) -> None:
    (checkout / ".venv" / "bin").mkdir(parents=True)
    python = checkout / ".venv" / "bin" / "python"
    # A link would be an environment without packages.
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (checkout / "server.py").write_text(server)


def test_version_with_other_losses_is_told_apart(run_benchmark: Run, tmp_path: Path) -> None:
    set_up(tmp_path, OTHER_SERVER)
    done = run_benchmark("versions", str(tmp_path), *TINY)
    assert done.returncode == 1
    assert "expected the same in both versions" in done.stderr
    assert "and 1.0 in step 0" in done.stderr


def test_server_that_fails_in_the_end_is_no_contestant(run_benchmark: Run, tmp_path: Path) -> None:
    set_up(tmp_path, OTHER_SERVER + "sys.exit('the disk is full')")
    done = run_benchmark("versions", str(tmp_path), *TINY)
    assert done.returncode == 1
    assert "expected exit code 0 of its server: the disk is full" in done.stderr


SLOWER_SERVER = f"""
import sys, time
while time.process_time() < 3.0:
    sum(range(10_000))
sys.path.insert(0, {CHECKOUT!r})
from fedlearn.commands.command_line import main
from fedlearn.server import trainer

record = trainer.Trainer.record

def record_slowly(*arguments, **named):
    metrics = record(*arguments, **named)
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    return metrics

trainer.Trainer.record = record_slowly
main(["serve", *sys.argv[1:]])
"""


@pytest.mark.long
def test_slower_version_is_found_in_every_round(read_json: ReadJson, tmp_path: Path) -> None:
    set_up(tmp_path, SLOWER_SERVER)
    flags = ("--hidden-size", "8", "--population-limit", "128", "--steps", "30", "--rounds", "2")
    figures = {figure["name"]: figure for figure in read_json("versions", str(tmp_path), *flags)["figures"]}
    processor = figures["processor"]
    assert processor["this_over_other"]["high"] < 1
    assert processor["least_over_least"] < 1
    # The 3 s before its first step would be another 120 ms in each of 25.
    assert 50 < processor["other_ms"]["low"] < processor["other_ms"]["high"] < 130
    assert figures["median step"]["this_over_other"]["high"] < 1
