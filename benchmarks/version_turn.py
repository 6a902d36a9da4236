"""One run of a checkout's `server.py` with its local volunteer, timed from the outside."""

import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import msgspec

import es_core

HERE = Path(__file__).parents[1]

WARM_UP_STEPS = 5
"""Not counted: the processes start, and the volunteer's first slices are short."""

IN_A_ROW = 10
"""Steps whose time counts together for the quickest: a line that was late makes the next one early."""

WATCH_S = 0.02
MOST_S = 60.0
"""For a server to get warm."""


class Turn(msgspec.Struct, frozen=True):
    """What a run took, in ms a step."""

    median_ms: float
    least_ms: float
    processor_ms: float
    """Of server and volunteer."""
    losses: list[float]


class _Line(msgspec.Struct):
    """What any version writes of a step."""

    loss: float
    time: float


def take_turn(checkout: Path, flags: list[str], runs: Path) -> Turn:
    """Runs the checkout's server to its end.

    Raises:
        RuntimeError: the server fails.
        ValueError: the checkout was not set up.
    """
    # Another environment's editable install would come before the checkout's own packages, whatever the path says.
    python = Path(sys.executable) if checkout == HERE else checkout / ".venv" / "bin" / "python"
    if not python.exists():
        raise ValueError(f"{python}: expected the Python of a checkout that is set up; follow its README there")
    environment = {name: text for name, text in os.environ.items() if not name.startswith("FEDLEARN_")}
    server = subprocess.Popen(
        [str(python), "server.py", *flags],
        cwd=checkout,
        env={**environment, "FEDLEARN_ISA": es_core.current_isa(), "FEDLEARN_BOARD": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        warm_s, n_warm = _watch(server, runs)
        _, status, usage = os.wait4(server.pid, 0)
    finally:
        server.kill()
        server.wait()
    if status != 0:
        raise RuntimeError(f"{checkout}: expected exit code 0 of its server: {_complaint(server)}")
    lines = _lines(runs)
    if len(lines) < n_warm + IN_A_ROW:
        raise RuntimeError(f"steps: expected more than {n_warm + IN_A_ROW}, to be timed when warm, got {len(lines)}")
    times = [line.time * 1e3 for line in lines[n_warm - 1 :]]
    several = [later - earlier for earlier, later in zip(times, times[IN_A_ROW:], strict=False)]
    return Turn(
        median_ms=median(later - earlier for earlier, later in pairwise(times)),
        least_ms=min(several) / IN_A_ROW,
        processor_ms=(usage.ru_utime + usage.ru_stime - warm_s) * 1e3 / (len(lines) - n_warm),
        losses=[line.loss for line in lines],
    )


def _watch(server: "subprocess.Popen[str]", runs: Path) -> tuple[float, int]:
    """Waits until it is warm; gives the processor time behind it by then, and its steps."""
    began = time.monotonic()
    while (n_steps := len(_lines(runs))) < WARM_UP_STEPS:
        if server.poll() is not None:
            raise RuntimeError(
                f"server.py: expected {WARM_UP_STEPS} steps and more, saw {n_steps}: {_complaint(server)}"
            )
        if time.monotonic() - began > MOST_S:
            raise RuntimeError(f"server.py: expected {WARM_UP_STEPS} steps within {MOST_S:g} s, saw {n_steps}")
        time.sleep(WATCH_S)
    return sum(_processor_s(pid) for pid in (server.pid, *_children(server.pid))), n_steps


def _complaint(server: "subprocess.Popen[str]") -> str:
    assert server.stderr is not None
    return server.stderr.read().strip()


def _lines(runs: Path) -> list[_Line]:
    files = list(runs.glob("*/metrics.jsonl"))
    text = files[0].read_bytes() if files else b""
    return [msgspec.json.decode(line, type=_Line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]


def _children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _processor_s(pid: int) -> float:
    """User and system time of a process that runs."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
