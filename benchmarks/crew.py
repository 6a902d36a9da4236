"""What a crew costs beside a volunteer that holds the whole model: processor time and bytes a member, members a second.

Servers and volunteers are processes of this machine; each arrangement trains the same model from the same seed, after a
few steps that are not measured. A crew is never faster than its machines: what it costs more is sending, which grows
with the width of the model where the arithmetic grows with its square.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from threading import Thread

import msgspec
from measure import Machine, describe_machine, print_report
from swarm import processor_s

from fedlearn.storage.logs.metrics import StepMetrics, read_last_metrics

TASK = """
import numpy as np
import torch
from torch import nn

import fedlearn

x = np.random.default_rng(0).uniform(-1, 1, (256, {width})).astype(np.float32)
torch.manual_seed(0)


def model():
    layers = [part for _ in range(6) for part in (nn.Linear({width}, {width}), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear({width}, 1))


def loss(model, rows):
    return nn.functional.mse_loss(model(rows["x"])[:, 0], rows["y"])


data = {{"x": x, "y": np.sin(3 * x[:, 0])}}
task = fedlearn.supervised(model, loss, data, batch_size={rows}, settings={{"sigma": 0.01, "learning_rate": 0.001}})
"""
ROWS = 32
WARM_UP = 2
"""Steps that are not measured: the first trials of a process build what later ones use."""
LONGEST_S = 600.0


class Cost(msgspec.Struct, frozen=True):
    """Of one arrangement."""

    name: str
    volunteers_ms: float
    """Processor time of all volunteers for a member,"""
    server_ms: float
    """and of the server."""
    members_per_s: float
    cut_bytes: float
    """Bytes of a member's activations at a cut, on average; 0 where there is none."""
    relayed_bytes: float
    """Of these, through the server."""
    digest: str


class Report(msgspec.Struct, frozen=True):
    """What is printed with `--json`: each figure the median of the rounds."""

    benchmark: str
    machine: Machine
    rounds: int
    steps: int
    members: int
    width: int
    formula_bytes: int
    """That a member's activations take at a cut, by docs/protocol.md."""
    costs: list[Cost]
    shares: dict[str, float]
    """Processor time of a member's volunteers beside that of the whole model's."""
    ns_a_byte: dict[str, float]
    """What a crew's volunteers take more, for each byte that crosses a cut."""


ARRANGEMENTS: dict[str, tuple[int, str]] = {"alone": (1, "false"), "crew": (3, "false"), "direct crew": (3, "true")}
"""Seats, and whether they send to each other."""
N_CUTS = 2


@contextmanager
def process(*arguments: str, folder: Path) -> Iterator[tuple[int, int]]:
    """A process that is ended at the end: its number, and the port on which it listens; 0 for volunteers."""
    is_server = arguments[0] == "serve"
    environ = os.environ | {"XDG_CONFIG_HOME": str(folder / "config"), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "fedlearn", *arguments]
    made = subprocess.Popen(
        command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert made.stdout is not None
    said = ""
    try:
        while is_server and not re.search(r"listening on \S+:(\d+)", said):
            line = made.stdout.readline()
            if not line:
                raise RuntimeError(f"{arguments[0]}: expected a port, got: {said}")
            said += line
        Thread(target=made.stdout.read, daemon=True).start()
        found = re.search(r"listening on \S+:(\d+)", said)
        yield made.pid, int(found.group(1)) if found else 0
    finally:
        made.terminate()
        made.wait()


def measure(name: str, *, steps: int, members: int, width: int, folder: Path) -> Cost:
    """A server and volunteers of its own."""
    seats, direct = ARRANGEMENTS[name]
    (folder / "task.py").write_text(TASK.format(width=width, rows=ROWS))
    served = ["serve", "--task", "task.py:task", "--port", "0", "--board", "0", "--volunteers", "0", "--audit", "0"]
    served += ["--population-limit", f"{members}", "--group-size", f"{min(members, 64)}", "--time-per-step", "600"]
    served += ["--sample-time", "0", "--checkpoint-time", "1e6", "--seats", f"{seats}", "--direct", direct]
    joined = ["join", "--once", "--priority", "normal", "--threads", "1", "--on-battery", "yes"]
    with ExitStack() as held:
        server, port = held.enter_context(process(*served, folder=folder))
        joined += ["--server", f"127.0.0.1:{port}", *(["--direct", "127.0.0.1:0"] if direct == "true" else [])]
        volunteers = [held.enter_context(process(*joined, folder=folder))[0] for _ in range(seats)]
        metrics = folder / "trainingRuns/1/metrics.jsonl"
        first = _taken(metrics, WARM_UP)
        before = [processor_s(pid) for pid in (server, *volunteers)]
        last = _taken(metrics, len(first) + steps)
        used = [processor_s(pid) - since for pid, since in zip((server, *volunteers), before, strict=True)]
    return _cost(name, last[len(first) :], used)


def _cost(name: str, steps: Sequence[StepMetrics], used_s: Sequence[float]) -> Cost:
    """Of the steps that were measured; `used_s` begins with the server's."""
    n_members = sum(step.members for step in steps)
    crossed = [cut for step in steps for cut in step.relayed.values()]
    n_crossed = max(sum(count for count, _, _ in crossed), 1)
    return Cost(
        name=name,
        volunteers_ms=1e3 * sum(used_s[1:]) / n_members,
        server_ms=1e3 * used_s[0] / n_members,
        members_per_s=sum(step.work_per_s for step in steps) / len(steps) / ROWS,
        cut_bytes=sum(relayed + direct for _, relayed, direct in crossed) / n_crossed,
        relayed_bytes=sum(relayed for _, relayed, _ in crossed) / n_crossed,
        digest=steps[-1].digest,
    )


def _taken(path: Path, count: int) -> list[StepMetrics]:
    """The steps that were taken, once there are so many."""
    until = time.monotonic() + LONGEST_S
    while len(steps := read_last_metrics(path, 10**6)) < count:
        if time.monotonic() > until:
            raise RuntimeError(f"expected {count} steps within {LONGEST_S:g} s, got {len(steps)}")
        time.sleep(0.01)
    return steps


def middle(costs: Sequence[Cost]) -> Cost:
    """The medians of one arrangement over the rounds."""
    fields = ("volunteers_ms", "server_ms", "members_per_s", "cut_bytes", "relayed_bytes")
    return msgspec.structs.replace(costs[0], **{f: median(getattr(cost, f) for cost in costs) for f in fields})


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description="What a crew of three costs beside one volunteer.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of all, by turns (default: 3)")
    parser.add_argument("--steps", type=int, default=5, metavar="N", help="of each (default: 5)")
    parser.add_argument("--members", type=int, default=1024, metavar="N", help="of each step (default: 1024)")
    parser.add_argument("--width", type=int, default=256, metavar="N", help="of the model's layers (default: 256)")
    options = parser.parse_args()
    sizes = {"steps": options.steps, "members": options.members, "width": options.width}
    found: dict[str, list[Cost]] = {name: [] for name in ARRANGEMENTS}
    for _ in range(options.rounds):
        for name in ARRANGEMENTS:
            with tempfile.TemporaryDirectory() as folder:
                found[name].append(measure(name, **sizes, folder=Path(folder)))
    costs = [middle(each) for each in found.values()]
    report = Report(
        benchmark=Path(__file__).stem,
        machine=describe_machine(),
        rounds=options.rounds,
        **sizes,
        formula_bytes=4 * options.width * ROWS,
        costs=costs,
        shares={cost.name: cost.volunteers_ms / costs[0].volunteers_ms for cost in costs},
        ns_a_byte={cost.name: _ns_a_byte(cost, costs[0]) for cost in costs[1:]},
    )
    print_report(report, lambda: table(report), as_json=options.json)
    return 0


def _ns_a_byte(cost: Cost, alone: Cost) -> float:
    return 1e6 * (cost.volunteers_ms - alone.volunteers_ms) / (N_CUTS * cost.cut_bytes)


def table(report: Report) -> str:
    """The report for people."""
    lines = [
        f"{report.machine.processor}; {report.rounds} rounds of {report.steps} steps of {report.members} members, "
        f"width {report.width}; by the formula {report.formula_bytes} bytes a member cross a cut",
        f"  {'':>12} {'volunteers, CPU ms':>19} {'beside alone':>13} {'ns a byte':>10} {'server, CPU ms':>15} "
        f"{'members/s':>10} {'bytes a cut':>12} {'relayed':>8}",
    ]
    lines += [
        f"  {cost.name:>12} {cost.volunteers_ms:19.3f} {report.shares[cost.name]:13.3f} "
        f"{report.ns_a_byte.get(cost.name, 0.0):10.2f} {cost.server_ms:15.3f} "
        f"{cost.members_per_s:10.1f} {cost.cut_bytes:12.1f} {cost.relayed_bytes:8.1f}"
        for cost in report.costs
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
