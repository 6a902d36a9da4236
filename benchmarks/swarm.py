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
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import cast, final

import msgspec
import numpy as np
from measure import Machine, Spread, describe_machine, print_report, spread

from fedlearn.coordination.worker import SLICE_S
from fedlearn.es.snapshot import Snapshot
from fedlearn.es.update import Update
from fedlearn.server.door import Door
from fedlearn.storage.task_file import load_task
from fedlearn.tasks.holding import Holding
from fedlearn.tasks.registry import find_kind
from fedlearn.wire.codec import decode
from fedlearn.wire.frames import HEADER_BYTES
from fedlearn.wire.limits import PING_AFTER_S
from fedlearn.wire.messages import (
    PROTOCOL_VERSION,
    Assignment,
    Challenge,
    Farewell,
    Goodbye,
    Hello,
    Message,
    Ping,
    Ready,
    Result,
    Start,
    Welcome,
)
from fedlearn.wire.parcel import pack
from fedlearn.wire.proof import NONCE_BYTES, Credentials, Identity, prove

GROUP_SIZE = 16
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

CREDENTIALS = Credentials(Identity.of_seed(bytes(32)))
"""Of all of them: one person may have any number of machines."""

_ASSIGNMENT, _SNAPSHOT, _START, _CHALLENGE, _UPDATE, _FAREWELL = 19, 17, 22, 23, 32, 21
_LEADERS: dict[int, type[msgspec.Struct]] = {16: Welcome, 22: Start, 32: Update}


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


@final
class Crowd:
    """All volunteers: what they know of the run, and when steps ended."""

    def __init__(self, task: Path, *, member_s: float = 0.0) -> None:
        self.member_s = member_s
        """What a member takes each of them."""
        self.n_members = 0
        """That counted."""
        self.task = load_task(f"{task}:task")
        self.holding: Holding | None = None
        self.digests: dict[int, bytes] = {}
        """Of the replica, by the step that it stood before."""
        self.ended_at: list[float] = []
        self.lights: list[Light] = []
        self.n_ready = 0
        self.n_lost = 0
        self.farewells: list[str] = []
        self._losses = np.random.default_rng(1).random(1 << 16, dtype=np.float32)
        self._waiting: dict[int, list[Callable[[bytes], None]]] = {}

    def take(self, message: Message) -> None:
        """What the first volunteer is told goes for all."""
        match message:
            case Welcome(_, invitation):
                objective = find_kind(invitation.kind).join(invitation, self.task, device="cpu")
                self.holding = Holding(objective, seed=invitation.seed, threads=1)
            case Start() if self.holding is not None:
                self._stand(message.first_step, self.holding.begin(message.first_step, keeps_start=message.keeps_start))
            case Update() if self.holding is not None:
                self.ended_at.append(time.perf_counter())
                self.n_members += message.n_members
                self._stand(message.step + 1, self.holding.apply(message))

    def at(self, step: int, then: Callable[[bytes], None]) -> None:
        """Calls back with the digest, at once where the replica has been there."""
        if (digest := self.digests.get(step)) is not None:
            then(digest)
        else:
            self._waiting.setdefault(step, []).append(then)

    def result(self, assignment: Assignment, digest: bytes, *, n_done: int, n_members: int) -> Result:
        """With losses that nobody computed, of so many members after those that are done."""
        first, busy_s = assignment.first_member + n_done, (n_done + n_members) * self.member_s
        return Result(assignment.step, first, self._losses[:n_members], digest, busy_s=busy_s)

    def _stand(self, step: int, digest: bytes) -> None:
        self.digests[step] = digest
        for then in self._waiting.pop(step, ()):
            then(digest)


@final
class Light(asyncio.Protocol):
    """A volunteer that reads no more of a frame than it must."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._leads = not crowd.lights
        self._buffer = b""
        self._chunks: list[bytes] = []
        self._computing: asyncio.TimerHandle | None = None
        self._assignment: Assignment | None = None
        crowd.lights.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._hello = Hello(
            PROTOCOL_VERSION, f"light {len(self._crowd.lights)}", 1, CREDENTIALS.identity.public_key, bytes(NONCE_BYTES)
        )
        self.send(self._hello)

    def connection_lost(self, _: Exception | None) -> None:
        self._crowd.n_lost += 1

    def send(self, message: Message) -> None:
        self._transport.write(pack(message).frame(0))

    def data_received(self, data: bytes) -> None:
        buffer, at = self._buffer + data, 0
        while len(buffer) - at >= HEADER_BYTES:
            chunk, n_chunks, length = struct.unpack_from("<III", buffer, at + 8)
            end = at + HEADER_BYTES + length
            if len(buffer) < end:
                break
            payload = buffer[at + HEADER_BYTES : end]
            if n_chunks > 1:
                self._chunks = [*(self._chunks if chunk else ()), payload]
                payload = b"".join(self._chunks)
            if chunk + 1 == n_chunks:
                self._take(buffer[at + 3], payload)
            at = end
        self._buffer = buffer[at:]

    def _take(self, tag: int, payload: bytes) -> None:
        if self._leads and (kind := _LEADERS.get(tag)) is not None:
            self._crowd.take(cast(Message, decode(payload, kind)))
        if tag == _CHALLENGE:
            self.send(prove(CREDENTIALS, self._hello, decode(payload, Challenge), b""))
        elif tag == _ASSIGNMENT:
            assignment = decode(payload, Assignment)
            began = asyncio.get_running_loop().time()
            self._stop_computing()
            self._assignment = assignment
            self._crowd.at(assignment.step, lambda digest: self._compute(assignment, digest, began=began, n_done=0))
        elif tag == _UPDATE:
            self._stop_computing()
        elif tag == _FAREWELL:
            self._crowd.farewells.append(decode(payload, Farewell).reason)
        elif tag == _SNAPSHOT:
            snapshot = decode(payload, Snapshot)
            self._be_ready(snapshot.step, snapshot.digest)
        elif tag == _START:
            start = decode(payload, Start)
            self._crowd.at(start.step, lambda digest: self._be_ready(start.step, digest))

    def _compute(self, assignment: Assignment, digest: bytes, *, began: float, n_done: int) -> None:
        """Sends what a slice of its time gives, once that is over."""
        if assignment is not self._assignment:
            return
        n_members = assignment.quota - n_done
        if self._crowd.member_s > 0.0:
            n_members = min(n_members, max(int(SLICE_S / self._crowd.member_s) // GROUP_SIZE, 1) * GROUP_SIZE)

        def tell() -> None:
            self.send(self._crowd.result(assignment, digest, n_done=n_done, n_members=n_members))
            if n_done + n_members < assignment.quota:
                self._compute(assignment, digest, began=began, n_done=n_done + n_members)

        if self._crowd.member_s > 0.0:
            done_at = began + (n_done + n_members) * self._crowd.member_s
            self._computing = asyncio.get_running_loop().call_at(done_at, tell)
        else:
            tell()

    def _stop_computing(self) -> None:
        self._assignment = None
        if self._computing is not None:
            self._computing.cancel()

    def _be_ready(self, step: int, digest: bytes) -> None:
        self.send(Ready(step, digest))
        self._crowd.n_ready += 1


async def drive(crowd: Crowd, port: int, *, server: int, volunteers: int, steps: int) -> Cost:
    """Connects all, one after another, and watches them take steps."""
    loop = asyncio.get_running_loop()
    pinging = asyncio.create_task(_ping(crowd))
    for number in range(volunteers):
        await loop.create_connection(lambda: Light(crowd), "127.0.0.1", port)
        await _until(crowd, partial(_has_ready, crowd, number // 2 + 1))
    await _until(crowd, partial(_has_ready, crowd, volunteers))
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
    await _until(crowd, lambda: len(crowd.ended_at) >= wanted)


async def _until(crowd: Crowd, is_so: Callable[[], bool]) -> None:
    """Raises RuntimeError where the server has cut a line."""
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
    Door()  # which lets this process open as many files as the system grants
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
