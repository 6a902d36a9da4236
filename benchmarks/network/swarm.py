"""What a server costs by how many volunteers it has, at itself or behind relays: real sockets, and no trials.

A server process trains a tiny function; this process is all its volunteers, which answer without computing. One of
them keeps a replica, whose digest all answer with; losses are made up. So a step's time is what server, sockets and
this process's own loop take: with one volunteer the least there is, with hundreds what each of them adds.

With `--member-ms` each waits as long as a machine of its own would compute, and the population may grow: what is asked
then is which share of its time each spends on evaluating. These machines stand on two cores, hence what this process
takes counts as the line's. With `--relays` volunteers join by turns at so many relays, processes of this machine, too.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec

from benchmarks.measure import Spread, parser_of, print_tables, spread
from benchmarks.network.crowd import GROUP_SIZE, Crowd, Light
from benchmarks.network.processes import process, processor_s
from fedlearn.server.connection_policy import ConnectionPolicy
from fedlearn.wire.limits import PING_AFTER_S
from fedlearn.wire.messages import Goodbye, Ping

TASK = """
import numpy as np
import fedlearn

start = {"position": np.zeros(64)}
task = fedlearn.function(lambda arrays: 0.0, start, settings={"sigma": 0.05, "learning_rate": 0.02})
"""
WARM_UP = 20
"""Steps before those that count."""

MAX_POPULATION = 2**20
"""Members of a step at most, where volunteers compute."""

OPEN_TO_ALL = {
    "host": "127.0.0.1",
    "port": 0,
    "audit": 0,
    "threads": 1,
    "connections-per-address": 0,
    "connections-per-identity": 0,
    "joins-per-minute": 0,
}


class Cost(msgspec.Struct, frozen=True):
    """Figures with so many volunteers; times are of one step."""

    volunteers: int
    relays: int
    step_ms: Spread
    server_ms: float
    """Processor time of the server."""
    server_us_each: float
    """The same for each volunteer."""
    relay_ms: float
    """Processor time of a relay, on average."""
    crowd_ms: float
    """Processor time of this process."""
    members_per_s_each: float
    """Members of each volunteer that counted."""
    evaluating: float
    """Share of its time that a volunteer spends on members that count; 0 where they answer at once."""


async def drive(crowd: Crowd, ports: Sequence[int], pids: Sequence[int], *, volunteers: int, steps: int) -> Cost:
    """Connects all, by turns to these ports, and watches them take steps; `pids` begins with the server's."""
    loop = asyncio.get_running_loop()
    pinging = asyncio.create_task(_ping(crowd))
    for number in range(volunteers):
        await loop.create_connection(lambda: Light(crowd), "127.0.0.1", ports[number % len(ports)])
        await _until(crowd, partial(_has_ready, crowd, number // 2 + 1))
    await _until(crowd, partial(_has_ready, crowd, volunteers))
    await _steps(crowd, WARM_UP)
    first, n_members, crowd_s = len(crowd.ended_at), crowd.n_members, time.process_time()
    before_s = [processor_s(pid) for pid in pids]
    await _steps(crowd, steps)
    ended_at = crowd.ended_at[first - 1 :]
    n_steps = len(ended_at) - 1
    server_ms, *relays_ms = [
        1e3 * (processor_s(pid) - since) / n_steps for pid, since in zip(pids, before_s, strict=True)
    ]
    members_per_s_each = (crowd.n_members - n_members) / (ended_at[-1] - ended_at[0]) / volunteers
    crowd_ms = 1e3 * (time.process_time() - crowd_s) / n_steps
    pinging.cancel()
    for light in crowd.lights:
        light.send(Goodbye("enough"))
    return Cost(
        volunteers=volunteers,
        relays=len(relays_ms),
        step_ms=spread([1e3 * (after - before) for before, after in pairwise(ended_at)]),
        server_ms=server_ms,
        server_us_each=1e3 * server_ms / volunteers,
        relay_ms=sum(relays_ms) / max(len(relays_ms), 1),
        crowd_ms=crowd_ms,
        members_per_s_each=members_per_s_each,
        evaluating=members_per_s_each * crowd.member_s,
    )


async def _ping(crowd: Crowd) -> None:
    """Sends a sign of life of everybody, as of whoever rests from a step or two."""
    while True:
        await asyncio.sleep(PING_AFTER_S)
        for light in crowd.lights[: crowd.n_ready]:
            light.send(Ping())


def _has_ready(crowd: Crowd, count: int) -> bool:
    return crowd.n_ready >= count


async def _steps(crowd: Crowd, n_steps: int) -> None:
    wanted = len(crowd.ended_at) + n_steps
    await _until(crowd, lambda: len(crowd.ended_at) >= wanted)


async def _until(crowd: Crowd, is_so: Callable[[], bool]) -> None:
    """Waits until something is so.

    Raises:
        RuntimeError: the server has cut a line.
    """
    while not is_so():
        if crowd.n_lost:
            raise RuntimeError(f"volunteers: expected all to stay, {crowd.n_lost} were cut off: {set(crowd.farewells)}")
        await asyncio.sleep(0.005)


def measure(volunteers: int, relays: int, options: argparse.Namespace, folder: Path) -> Cost:
    """The cost of so many volunteers, with a server and relays of their own."""
    member_s = 1e-3 * options.member_ms
    task = folder / "tiny.py"
    task.write_text(TASK)
    access = _flags({"task": f"{task}:task", **OPEN_TO_ALL})
    settings = {
        "volunteers": 0,
        "group-size": GROUP_SIZE,
        "population-limit": GROUP_SIZE * volunteers,
        "max-population": MAX_POPULATION if member_s > 0.0 else 0,
        "exchange": "sum" if member_s > 0.0 else "replay",  # or Updates would grow with the population
        "time-per-step": 60,
        "checkpoint-time": 1e6,
        "sample-time": 0,
        "board": 0,
    }
    with ExitStack() as held:
        pid, port = held.enter_context(process("serve", *access, *_flags(settings), folder=folder))
        pids, ports = [pid], [port]
        for _ in range(relays):
            relay = ["relay", f"127.0.0.1:{port}", *access, "--identity", str(folder / "relay.pem")]
            pid, at = held.enter_context(process(*relay, folder=folder))
            pids.append(pid)
            ports.append(at)
        crowd = Crowd(task, member_s=member_s)
        return asyncio.run(drive(crowd, ports[1:] or ports, pids, volunteers=volunteers, steps=options.steps))


def _flags(settings: Mapping[str, object]) -> list[str]:
    return [part for name, value in settings.items() for part in (f"--{name}", str(value))]


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--volunteers", type=int, nargs="+", default=[1, 45, 100, 500, 1000], metavar="N", help="in turn"
    )
    parser.add_argument("--relays", type=int, nargs="+", default=[0], metavar="N", help="for each number; 0: none")
    parser.add_argument("--steps", type=int, default=100, metavar="N", help="of each number (default: 100)")
    parser.add_argument(
        "--member-ms", type=float, default=0.0, metavar="MS", help="what a member takes each volunteer (default: 0)"
    )
    options = parser.parse_args()
    ConnectionPolicy()  # which lets this process open as many files as the system grants
    costs = []
    for volunteers in options.volunteers:
        for relays in options.relays:
            with tempfile.TemporaryDirectory() as folder:
                costs.append(measure(volunteers, relays, options, Path(folder)))
    facts = {"steps": options.steps, "group_size": GROUP_SIZE, "member_ms": options.member_ms}
    print_tables("swarm", as_json=options.json, facts=facts, costs=costs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
