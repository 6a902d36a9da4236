"""What a crew costs beside a volunteer that holds the whole model: processor time and bytes a member, members a second.

Servers and volunteers are processes of this machine; each arrangement trains the same model from the same seed, after a
few steps that are not measured. A crew is never faster than its machines: what it costs more is sending, which grows
with the width of the model where the arithmetic grows with its square.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.measure import parser_of, print_tables
from benchmarks.network.processes import process, processor_s
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
N_CUTS = 2
ARRANGEMENTS: dict[str, tuple[int, str]] = {"alone": (1, "false"), "crew": (3, "false"), "direct crew": (3, "true")}
"""Seats, and whether they send to each other."""


class Cost(msgspec.Struct, frozen=True):
    """Figures of one arrangement, each the median of the rounds."""

    name: str
    volunteers_ms: float
    """Processor time of all volunteers for a member."""
    server_ms: float
    """Processor time of the server for a member."""
    members_per_s: float
    cut_bytes: float
    """Bytes of a member's activations at a cut, on average; 0 where there is none."""
    relayed_bytes: float
    """Bytes of these that go through the server."""
    digest: str
    share: float = 1.0
    """Processor time of a member's volunteers beside that of the whole model's."""
    ns_a_byte: float = 0.0
    """Processor time that volunteers take more than one alone, for each byte that crosses a cut."""


def measure(name: str, options: argparse.Namespace, folder: Path) -> Cost:
    """The cost of an arrangement, with a server and volunteers of its own."""
    seats, direct = ARRANGEMENTS[name]
    (folder / "task.py").write_text(TASK.format(width=options.width, rows=ROWS))
    served = ["serve", "--task", "task.py:task", "--port", "0", "--board", "0", "--volunteers", "0", "--audit", "0"]
    served += ["--population-limit", f"{options.members}", "--group-size", f"{min(options.members, 64)}"]
    served += ["--time-per-step", "600", "--sample-time", "0", "--checkpoint-time", "1e6"]
    joined = ["join", "--once", "--priority", "normal", "--threads", "1", "--on-battery", "yes"]
    with ExitStack() as held:
        flags = ["--seats", f"{seats}", "--direct", direct]
        server, port = held.enter_context(process(*served, *flags, folder=folder))
        joined += ["--server", f"127.0.0.1:{port}", *(["--direct", "127.0.0.1:0"] if direct == "true" else [])]
        pids = [
            server,
            *(held.enter_context(process(*joined, folder=folder, listens=False))[0] for _ in range(seats)),
        ]
        metrics = folder / "trainingRuns/1/metrics.jsonl"
        first = _taken(metrics, WARM_UP)
        before = [processor_s(pid) for pid in pids]
        last = _taken(metrics, len(first) + options.steps)
        used = [processor_s(pid) - since for pid, since in zip(pids, before, strict=True)]
    return _cost(name, last[len(first) :], used)


def _cost(name: str, steps: Sequence[StepMetrics], used_s: Sequence[float]) -> Cost:
    """The cost of the steps that were measured; `used_s` begins with the server's."""
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


def beside(cost: Cost, alone: Cost) -> Cost:
    """The cost with what it is beside that of a volunteer alone."""
    more_ms = cost.volunteers_ms - alone.volunteers_ms
    return msgspec.structs.replace(
        cost,
        share=cost.volunteers_ms / alone.volunteers_ms,
        ns_a_byte=1e6 * more_ms / (N_CUTS * cost.cut_bytes) if cost.cut_bytes else 0.0,
    )


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of all, by turns (default: 3)")
    parser.add_argument("--steps", type=int, default=5, metavar="N", help="of each (default: 5)")
    parser.add_argument("--members", type=int, default=1024, metavar="N", help="of each step (default: 1024)")
    parser.add_argument("--width", type=int, default=256, metavar="N", help="of the model's layers (default: 256)")
    options = parser.parse_args()
    found: dict[str, list[Cost]] = {name: [] for name in ARRANGEMENTS}
    for _ in range(options.rounds):
        for name in ARRANGEMENTS:
            with tempfile.TemporaryDirectory() as folder:
                found[name].append(measure(name, options, Path(folder)))
    costs = [middle(each) for each in found.values()]
    names = ("rounds", "steps", "members", "width")
    facts = {name: getattr(options, name) for name in names} | {"formula_bytes": 4 * options.width * ROWS}
    print_tables("crew", as_json=options.json, facts=facts, costs=[beside(cost, costs[0]) for cost in costs])
    return 0


if __name__ == "__main__":
    sys.exit(main())
