"""Handwritten digits through a real server with two volunteers of one thread each: accuracy on held-out images.

The server starts the two on its own machine. Seconds are those of training, as `--duration` counts them.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from measure import Machine, describe_machine, print_report

from fedlearn.storage.logs.metrics import read_last_metrics

HERE = Path(__file__).parent
NETWORKS = ("mlp", "cnn")


class Row(msgspec.Struct, frozen=True):
    """One run."""

    network: str
    seed: int
    steps: int
    examples_per_s: float
    """Trials of the last step."""
    accuracy: float


class Report(msgspec.Struct, frozen=True):
    """What `--json` prints."""

    benchmark: str
    machine: Machine
    seconds: float
    rows: list[Row]


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="of training (default: 60)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], metavar="N", help="of runs (default: 1)")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS), help="(default: both)")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args()
    rows = [trained(network, seed, options.seconds) for network in options.networks for seed in options.seeds]
    print_report(Report("digits", describe_machine(), options.seconds, rows), lambda: table(rows), as_json=options.json)
    return 0


def trained(network: str, seed: int, seconds: float) -> Row:
    """A run of real processes.

    Raises:
        RuntimeError: the server fails.
    """
    with tempfile.TemporaryDirectory() as runs:
        flags = [
            "--task",
            f"{HERE / 'digit_models.py'}:{network}",
            "--volunteers",
            "2",
            "--threads",
            "1",
            "--port",
            "0",
        ]
        flags += ["--port", "0", "--duration", str(seconds), "--seed", str(seed), "--runs", runs, "--sample-time", "0"]
        _run("serve", *flags)
        said = _run("eval", "latest", "--runs", runs)
        found = re.search(r"accuracy ([0-9.]+)", said)
        if found is None:
            raise RuntimeError(f"eval: expected an accuracy, got: {said}")
        last = read_last_metrics(Path(runs, "1", "metrics.jsonl"))[-1]
        return Row(network, seed, last.step + 1, last.work_per_s, float(found.group(1)))


def _run(*arguments: str) -> str:
    command = [sys.executable, "-m", "fedlearn", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{arguments[0]}: expected exit code 0, got {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def table(rows: list[Row]) -> str:
    """For people."""
    form = "{:8} {:>4} {:>6} {:>11} {:>9}"
    lines = [form.format("network", "seed", "steps", "examples/s", "accuracy")]
    lines += [form.format(r.network, r.seed, r.steps, f"{r.examples_per_s:.3g}", f"{r.accuracy:.3f}") for r in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
