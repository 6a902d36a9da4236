"""Does what README says, as a reader types it: python .ci/readme.py start|test [SECONDS]

It runs in the folder it is called from, which has to be a clone with no environment of its own. `start` runs README's
first command until it has learned for SECONDS (30), presses Ctrl-C, and runs the command that lets the model write;
`test` runs the command that tests. Python is whatever `python3` is on the path.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
LEARNS = re.compile(r"^step +\d+ +([\d.]+) bits/character")
STARTS_WITHIN_S = 900.0
"""Compilers are slow on some machines."""


def commands(heading: str) -> list[str]:
    """The shell's commands below a heading of README, a fence each."""
    _, _, below = README.partition(f"\n## {heading}\n")
    return [fence.strip() for fence in re.findall(r"```sh\n(.*?)```", below.partition("\n## ")[0], flags=re.S)]


def start(seconds: float) -> None:
    """Runs the first command and then the second; raises SystemExit where the model does not learn."""
    first, sample = commands("Start")[:2]
    losses = losses_of(first, seconds)
    if len(losses) < 2 or losses[-1] >= losses[0]:
        sys.exit(f"expected a loss that falls within {seconds:g} s, got {losses}")
    words = shown_by(sample)
    if not re.search(r"[A-Za-z]{2}", words.partition("The value of")[2]):
        sys.exit(f"expected words from: {sample}")


def losses_of(command: str, seconds: float) -> list[float]:
    """The losses that the command prints until it is interrupted, which it has to take well."""
    print(f"$ {command}", flush=True)
    process = subprocess.Popen(
        ["bash", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # so that Ctrl-C is for it alone
    )
    timers = [threading.Timer(STARTS_WITHIN_S, os.killpg, (process.pid, signal.SIGKILL))]
    losses: list[float] = []
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        if found := LEARNS.match(line):
            losses.append(float(found.group(1)))
            if len(losses) == 1:
                timers.append(threading.Timer(seconds, os.killpg, (process.pid, signal.SIGINT)))
                timers[-1].start()
    for timer in timers:
        timer.cancel()
    if process.wait() != 0:
        sys.exit(f"expected exit code 0, got {process.returncode}")
    return losses


def shown_by(command: str) -> str:
    """What a command prints; it is shown as well."""
    print(f"$ {command}", flush=True)
    done = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, flush=True)
    if done.returncode != 0:
        sys.exit(f"expected exit code 0, got {done.returncode}")
    return done.stdout


def main() -> int:
    what, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 30.0
    if what == "start":
        start(seconds)
        return 0
    (command,) = commands("Tests")
    print(f"$ {command}", flush=True)
    return subprocess.run(["bash", "-c", command], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
