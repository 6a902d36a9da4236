import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ReadJson = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def run_benchmark() -> Run:
    """Runs `benchmarks/<name>.py` with flags, to its end."""

    def run(name: str, *flags: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, str(FOLDER / f"{name}.py"), *flags]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    return run


@pytest.fixture(scope="session")
def read_json(run_benchmark: Run) -> ReadJson:
    """Runs a benchmark with --json; gives the one object that it prints."""

    def read(name: str, *flags: str) -> dict[str, Any]:
        done = run_benchmark(name, "--json", *flags)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        report = json.loads(done.stdout)
        assert isinstance(report, dict)
        assert report["benchmark"] == name
        return report

    return read
