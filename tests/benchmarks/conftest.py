import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.forking import used
from tests.end_to_end.processes import run

ROOT = Path(__file__).parents[2]

HANGS_AFTER_S = 900.0
"""A benchmark that takes longer will not end; a busy machine is no reason to end one before."""

used.update(("torch", "sklearn"))

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ReadJson = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def run_benchmark() -> Run:
    """Runs the benchmark of that name with flags, to its end."""

    def run_it(name: str, *flags: str) -> "subprocess.CompletedProcess[str]":
        (path,) = (ROOT / "benchmarks").rglob(f"{name}.py")
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        return run("-m", module, *flags, folder=ROOT, limit_s=HANGS_AFTER_S)

    return run_it


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
