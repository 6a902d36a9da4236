"""What a server costs by how many volunteers it has: real sockets, and volunteers that answer without computing.

A server process trains a tiny function; this process is all its volunteers. One of them keeps a replica, whose digest
all answer with; losses are made up. So a step's time is what server, sockets and this process's own loop take: with
one volunteer the least there is, with hundreds what each of them adds.

With `--member-ms` each waits as long as a machine of its own would compute, and the population may grow: what is asked
then is which share of its time each spends on evaluating. These machines stand on two cores, hence what this process
takes counts as the line's.
"""

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Thread

import msgspec
from crowd import GROUP_SIZE, Crowd, Light
from measure import Machine, Spread, describe_machine, print_report, spread

from fedlearn.server.connection_policy import ConnectionPolicy
from fedlearn.wire.limits import PING_AFTER_S
from fedlearn.wire.messages import (
    Goodbye,
    Ping,
)

TASK = """
import numpy as np
import fedlearn

start = {"position": np.zeros(64)}
task = fedlearn.function(lambda arrays: 0.0, start, settings={"sigma": 0.05, "learning_rate": 0.02})
"""
WARM_UP = 20
"""Steps before those that count."""

MAX_POPULATION = 2**20
"""For volunteers that compute."""


class Cost(msgspec.Struct, frozen=True):
    """With so many volunteers."""

    volunteers: int
    step_ms: Spread
    times_one: float
    """Median step over that of the first number of volunteers."""
    server_ms: float
    """Processor time of the server for a step."""
    server_us_each: float
    """And by volunteer."""
    crowd_ms: float
    """Processor time of this process for a step."""
    members_per_s_each: float
    """That counted, by volunteer."""
    evaluating: float
    """Share of its time that a volunteer spends on members that count; 0 where they answer at once."""


class Report(msgspec.Struct, frozen=True):
    """What is printed with `--json`."""

    benchmark: str
    machine: Machine
    steps: int
    costs: list[Cost]


async def drive(crowd: Crowd, port: int, *, server: int, volunteers: int, steps: int) -> Cost:
    """Connects all, one after another, and watches them take steps."""
    loop = asyncio.get_running_loop()
    pinging = asyncio.create_task(_ping(crowd))
    for number in range(volunteers):
        await loop.create_connection(lambda: Light(crowd), "127.0.0.1", port)
        await until(crowd, partial(_has_ready, crowd, number // 2 + 1))
    await until(crowd, partial(_has_ready, crowd, volunteers))
    await _steps(crowd, WARM_UP)
    first, server_s, crowd_s = len(crowd.ended_at), processor_s(server), time.process_time()
    n_members = crowd.n_members
    await _steps(crowd, steps)
    ended_at = crowd.ended_at[first - 1 :]
    n_steps = len(ended_at) - 1
    server_ms = 1e3 * (processor_s(server) - server_s) / n_steps
    members_per_s_each = (crowd.n_members - n_members) / (ended_at[-1] - ended_at[0]) / volunteers
    pinging.cancel()
    for light in crowd.lights:
        light.send(Goodbye("enough"))
    return Cost(
        volunteers=volunteers,
        step_ms=spread([1e3 * (after - before) for before, after in pairwise(ended_at)]),
        times_one=1.0,
        server_ms=server_ms,
        server_us_each=1e3 * server_ms / volunteers,
        crowd_ms=1e3 * (time.process_time() - crowd_s) / n_steps,
        members_per_s_each=members_per_s_each,
        evaluating=members_per_s_each * crowd.member_s,
    )


async def _ping(crowd: Crowd) -> None:
    """A sign of life of everybody, as of whoever rests from a step or two."""
    while True:
        await asyncio.sleep(PING_AFTER_S)
        for light in crowd.lights[: crowd.n_ready]:
            light.send(Ping())


def _has_ready(crowd: Crowd, count: int) -> bool:
    return crowd.n_ready >= count


async def _steps(crowd: Crowd, n_steps: int) -> None:
    wanted = len(crowd.ended_at) + n_steps
    await until(crowd, lambda: len(crowd.ended_at) >= wanted)


async def until(crowd: Crowd, is_so: Callable[[], bool]) -> None:
    """Waits until something is so.

    Raises:
        RuntimeError: the server has cut a line.
    """
    while not is_so():
        if crowd.n_lost:
            raise RuntimeError(f"volunteers: expected all to stay, {crowd.n_lost} were cut off: {set(crowd.farewells)}")
        await asyncio.sleep(0.005)


def processor_s(process: int) -> float:
    """What Linux says that a process has used, in hundredths of a second."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(volunteers: int, steps: int, folder: Path, *, member_s: float = 0.0) -> Cost:
    """A server of its own for so many."""
    task = folder / "tiny.py"
    task.write_text(TASK)
    settings = {
        "task": f"{task}:task",
        "volunteers": 0,
        "port": 0,
        "host": "127.0.0.1",
        "group-size": GROUP_SIZE,
        "population-limit": GROUP_SIZE * volunteers,
        "max-population": MAX_POPULATION if member_s > 0.0 else 0,
        "exchange": "sum" if member_s > 0.0 else "replay",  # or Updates would grow with the population
        "time-per-step": 60,
        "checkpoint-time": 1e6,
        "sample-time": 0,
        "audit": 0,
        "connections-per-address": 0,
        "connections-per-identity": 0,
        "joins-per-minute": 0,
        "runs": folder / "runs",
    }
    flags = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    server = subprocess.Popen(
        [sys.executable, "-m", "fedlearn", "serve", *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert server.stdout is not None
    said = ""
    try:
        while not (found := re.search(r"listening on \S+:(\d+)", said)):
            line = server.stdout.readline()
            if not line:
                raise RuntimeError(f"server: expected a port, got: {said}")
            said += line
        Thread(target=server.stdout.read, daemon=True).start()
        crowd = Crowd(task, member_s=member_s)
        driving = drive(crowd, int(found.group(1)), server=server.pid, volunteers=volunteers, steps=steps)
        return asyncio.run(driving)
    finally:
        server.terminate()
        server.wait()


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description="What a server costs by how many volunteers it has.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--volunteers", type=int, nargs="+", default=[1, 45, 100, 500, 1000], metavar="N", help="in turn"
    )
    parser.add_argument("--steps", type=int, default=100, metavar="N", help="of each number (default: 100)")
    parser.add_argument(
        "--member-ms", type=float, default=0.0, metavar="MS", help="what a member takes each volunteer (default: 0)"
    )
    options = parser.parse_args()
    member_s = 1e-3 * options.member_ms
    ConnectionPolicy()  # which lets this process open as many files as the system grants
    with tempfile.TemporaryDirectory() as folder:
        costs = [
            measure(volunteers, options.steps, Path(folder), member_s=member_s) for volunteers in options.volunteers
        ]
    least = costs[0].step_ms.median
    report = Report(
        benchmark=Path(__file__).stem,
        machine=describe_machine(),
        steps=options.steps,
        costs=[msgspec.structs.replace(cost, times_one=cost.step_ms.median / least) for cost in costs],
    )
    print_report(report, lambda: table(report), as_json=options.json)
    return 0


def table(report: Report) -> str:
    """The report for people: medians, with quartiles in brackets."""
    lines = [
        f"{report.machine.processor}; {report.steps} steps, a group of {GROUP_SIZE} for each volunteer",
        f"  {'volunteers':>10} {'a step, ms':>24} {'times':>6} {'server, ms':>11} {'us each':>8} {'crowd, ms':>10} "
        f"{'members/s each':>15} {'evaluating':>11}",
    ]
    lines += [
        f"  {cost.volunteers:10} {cost.step_ms.show(2):>24} {cost.times_one:6.1f} {cost.server_ms:11.2f} "
        f"{cost.server_us_each:8.1f} {cost.crowd_ms:10.2f} {cost.members_per_s_each:15.1f} {cost.evaluating:11.1%}"
        for cost in report.costs
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
