"""Commands as users type them, as real processes on loopback."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import psutil

from tests.end_to_end.forking import Forked
from tests.end_to_end.processes import ROOT, output_of, watch
from tests.patience import LIMIT_S

EXAMPLES = ROOT / "examples"
VALLEY = f"{EXAMPLES / 'valley.py'}:task"
FEDLEARN = (sys.executable, "-m", "fedlearn")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
STEPS_OF_A_THIRD_S = ("--population-limit", "8192", "--group-size", "32", "--time-per-step", "60", "--audit", "0")


def _begin(
    kind: type[subprocess.Popen[str]],
    *command: str,
    folder: Path,
    limit_s: float = LIMIT_S,
    environ: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """A process whose output is read by the test; it is killed when it lasts longer."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("FEDLEARN_", "RAY_"))}
    variables |= {"XDG_CONFIG_HOME": str(folder / "config"), "HOME": str(folder), "FEDLEARN_BOARD": "0"}
    variables |= {"PYTHONFAULTHANDLER": "1", **(environ or {})}
    process = kind(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=variables)
    watch(process, limit_s)
    return process


begin = partial(_begin, Forked)
begin_anew = partial(_begin, subprocess.Popen)
"""For tests that look at the child processes: it is not forked."""


def assert_ends(process: subprocess.Popen[str]) -> None:
    """It ends well within half a minute; else what it said and what its threads do is shown."""
    try:
        code = process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        code = process.wait()
    assert code == 0, output_of(process).read()


def below(process: subprocess.Popen[str], is_wanted: Callable[[list[str]], bool]) -> list[psutil.Process]:
    """Its descendants whose command line is wanted."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if is_wanted(child.cmdline()):
                found.append(child)
        except psutil.Error:  # it has just ended
            continue
    return found
