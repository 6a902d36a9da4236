"""What a server costs by where its volunteers are: at the server, or behind relays. As `swarm.py` measures it.

Server, relays and volunteers are processes of one machine. Volunteers answer without computing, so the processor time
of server and relays is what exchanging costs.
"""

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Thread

import msgspec
from crowd import GROUP_SIZE, Crowd, Light
from measure import Machine, Spread, describe_machine, print_report, spread
from swarm import TASK, WARM_UP, processor_s, until

from fedlearn.server.connection_policy import ConnectionPolicy
from fedlearn.wire.messages import Goodbye


class Cost(msgspec.Struct, frozen=True):
    """With so many volunteers behind so many relays, none: at the server itself."""

    volunteers: int
    relays: int
    step_ms: Spread
    server_ms: float
    """Processor time of the server for a step."""
    relay_ms: float
    """And of a relay, on average."""


class Report(msgspec.Struct, frozen=True):
    """What is printed with `--json`."""

    benchmark: str
    machine: Machine
    steps: int
    costs: list[Cost]


async def drive(crowd: Crowd, ports: Sequence[int], pids: Sequence[int], *, volunteers: int, steps: int) -> Cost:
    """Connects all, by turns to these ports, and watches them take steps; the server is the first of the processes."""
    loop = asyncio.get_running_loop()
    for number in range(volunteers):
        await loop.create_connection(lambda: Light(crowd), "127.0.0.1", ports[number % len(ports)])
        await until(crowd, partial(_has_ready, crowd, number // 2 + 1))
    await until(crowd, partial(_has_ready, crowd, volunteers))
    await _steps(crowd, WARM_UP)
    first, before_s = len(crowd.ended_at), [processor_s(pid) for pid in pids]
    await _steps(crowd, steps)
    ended_at = crowd.ended_at[first - 1 :]
    each_ms = [
        1e3 * (processor_s(pid) - since) / (len(ended_at) - 1) for pid, since in zip(pids, before_s, strict=True)
    ]
    for light in crowd.lights:
        light.send(Goodbye("enough"))
    return Cost(
        volunteers=volunteers,
        relays=len(pids) - 1,
        step_ms=spread([1e3 * (after - before) for before, after in pairwise(ended_at)]),
        server_ms=each_ms[0],
        relay_ms=sum(each_ms[1:]) / max(len(pids) - 1, 1),
    )


def _has_ready(crowd: Crowd, count: int) -> bool:
    return crowd.n_ready >= count


async def _steps(crowd: Crowd, n_steps: int) -> None:
    wanted = len(crowd.ended_at) + n_steps
    await until(crowd, lambda: len(crowd.ended_at) >= wanted)


@contextmanager
def listening(*arguments: str) -> Iterator[tuple[int, int]]:
    """A process that listens: its port and its number."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fedlearn", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    said = ""
    try:
        while not (found := re.search(r"listening on \S+:(\d+)", said)):
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"{arguments[0]}: expected a port, got: {said}")
            said += line
        Thread(target=process.stdout.read, daemon=True).start()
        yield int(found.group(1)), process.pid
    finally:
        process.terminate()
        process.wait()


def measure(volunteers: int, relays: int, steps: int, folder: Path) -> Cost:
    """A server of its own for so many."""
    task = folder / "tiny.py"
    task.write_text(TASK)
    gate = ["--task", f"{task}:task", "--host", "127.0.0.1", "--port", "0", "--audit", "0", "--threads", "1"]
    gate += ["--connections-per-address", "0", "--connections-per-identity", "0", "--joins-per-minute", "0"]
    settings = [
        "--volunteers",
        "0",
        "--group-size",
        f"{GROUP_SIZE}",
        "--population-limit",
        f"{GROUP_SIZE * volunteers}",
    ]
    settings += ["--time-per-step", "60", "--checkpoint-time", "1e6", "--sample-time", "0", "--board", "0"]
    with ExitStack() as held:
        port, pid = held.enter_context(listening("serve", *gate, *settings))
        ports, pids = [port], [pid]
        identity = ["--identity", str(folder / "relay.pem")]
        for _ in range(relays):
            port, pid = held.enter_context(listening("relay", f"127.0.0.1:{ports[0]}", *gate, *identity))
            ports.append(port)
            pids.append(pid)
        driving = drive(Crowd(task), ports[1:] or ports, pids, volunteers=volunteers, steps=steps)
        return asyncio.run(driving)


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description="What a server costs with its volunteers behind relays.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--volunteers", type=int, nargs="+", default=[40, 200, 400], metavar="N", help="in turn")
    parser.add_argument("--relays", type=int, nargs="+", default=[0, 2, 4], metavar="N", help="for each; 0: none")
    parser.add_argument("--steps", type=int, default=100, metavar="N", help="of each (default: 100)")
    options = parser.parse_args()
    ConnectionPolicy()  # which lets this process open as many files as the system grants
    costs = []
    for volunteers in options.volunteers:
        for relays in options.relays:
            with tempfile.TemporaryDirectory() as folder:
                costs.append(measure(volunteers, relays, options.steps, Path(folder)))
    report = Report(Path(__file__).stem, describe_machine(), options.steps, costs)
    print_report(report, lambda: table(report), as_json=options.json)
    return 0


def table(report: Report) -> str:
    """The report for people: medians, with quartiles in brackets."""
    lines = [
        f"{report.machine.processor}; {report.steps} steps, a group of {GROUP_SIZE} for each volunteer",
        f"  {'volunteers':>10} {'relays':>7} {'server, ms':>11} {'a relay, ms':>12} {'a step, ms':>24}",
    ]
    lines += [
        f"  {cost.volunteers:10} {cost.relays:7} {cost.server_ms:11.2f} {cost.relay_ms:12.2f} "
        f"{cost.step_ms.show(2):>24}"
        for cost in report.costs
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
