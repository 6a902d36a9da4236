"""Keys of a pseudo terminal; those of Windows come through windows.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import LIMIT_S

pty = pytest.importorskip("pty")

ROOT = Path(__file__).parents[2]
PROGRAM = """
import asyncio
from fedlearn.system.keys import keys
async def main():
    pressed = asyncio.Queue()
    with keys(pressed.put_nowait) as is_heard:
        print(is_heard, flush=True)
        if is_heard: print(await asyncio.wait_for(pressed.get(), 20.0), flush=True)
asyncio.run(main())
"""


def output(*before: str, stdin: int | None = None, pressed: str = "") -> str:
    """Of the program in a session of its own, so that the pseudo terminal is its terminal."""
    done = subprocess.run(
        [sys.executable, *before, "-c", PROGRAM],
        cwd=ROOT,
        stdin=stdin or subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PRESSED": pressed, "PYTHONPATH": str(ROOT)},
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nobody_presses_keys_where_there_is_no_terminal() -> None:
    assert output() == "False\n"


def test_keys_of_windows_are_asked_for() -> None:
    _, terminal = pty.openpty()
    assert output("tests/system/windows.py", stdin=terminal, pressed="q") == "True\nq\n"


def test_keys_come_without_a_line_end_and_the_terminal_is_left_as_it_was() -> None:
    program = f"""
import os, pty
pid, terminal = pty.fork()
if pid == 0:
    os.execv({sys.executable!r}, ["python", "-c", {PROGRAM!r}])
print(os.read(terminal, 64))
os.write(terminal, b"p")
read = b""
while b"p" not in read:
    read += os.read(terminal, 64)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    assert "True" in done.stdout
