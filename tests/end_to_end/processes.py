"""Real processes of server.py, client.py and the commands, on loopback."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from tests.end_to_end.forking import Forked
from tests.patience import LIMIT_S

ROOT = Path(__file__).parents[2]
SHORT_STEPS = ["--time-per-step", "0.3", "--population-limit", "1000000", "--sample-time", "2"]


def _start(
    kind: type[subprocess.Popen[str]],
    script: str,
    *arguments: str,
    folder: Path,
    limit_s: float = LIMIT_S,
    **environ: str,
) -> subprocess.Popen[str]:
    """`fedlearn`, or a script."""
    program = ["-m", script] if script == "fedlearn" else [str(ROOT / script)]
    process = kind(
        [sys.executable, *program, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={key: value for key, value in os.environ.items() if not key.startswith("FEDLEARN_")}
        | {"XDG_CONFIG_HOME": str(folder / "config"), "FEDLEARN_BOARD": "0"}
        | environ,
    )
    watch(process, limit_s)
    return process


start = partial(_start, Forked)
start_anew = partial(_start, subprocess.Popen)
"""For tests that look at how a process starts, at its child processes, or need another order of sets: not forked."""


def watch(process: subprocess.Popen[str], limit_s: float) -> None:
    """Kills a process that hangs, so that its test fails on what it printed so far.

    The process is not kept for that: one that a test leaves open is an error of that test, and not of a later one.
    """
    known = weakref.ref(process)

    def end() -> None:
        if (hanging := known()) is not None:
            hanging.kill()

    watchdog = threading.Timer(limit_s, end)
    watchdog.daemon = True
    watchdog.start()


@contextmanager
def ended_at_exit(*processes: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def output_of(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def wait_for(process: subprocess.Popen[str], pattern: str) -> tuple[str, str]:
    """Reads lines until one matches; gives its first group, and all that was read."""
    read = ""
    for line in output_of(process):
        read += line
        if found := re.search(pattern, line):
            return found.group(found.lastindex or 0), read
    raise AssertionError(f"{pattern!r} never came:\n{read}")


def run(*arguments: str, folder: Path, limit_s: float = LIMIT_S, **environ: str) -> "subprocess.CompletedProcess[str]":
    """What this Python does with these arguments, forked, to its end."""
    command, pipe = [sys.executable, *arguments], subprocess.PIPE
    with Forked(command, cwd=folder, stdout=pipe, stderr=pipe, text=True, env=os.environ | environ) as process:
        watch(process, limit_s)
        said, complained = process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, said, complained)


def fedlearn(*arguments: str, folder: Path) -> str:
    done = run("-m", "fedlearn", *arguments, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def metrics_of(folder: Path) -> list[dict[str, Any]]:
    """Of the steps that are whole in it; none before the first."""
    path = folder / "trainingRuns/1/metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def final_digest(process: subprocess.Popen[str]) -> str:
    digest, _ = wait_for(process, r"to step \d+ with digest ([0-9a-f]{16})")
    assert process.wait(timeout=LIMIT_S) == 0
    return digest
