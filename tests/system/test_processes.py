import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from fedlearn.system.processes import communicate
from tests.patience import LIMIT_S


def begun(code: str) -> "subprocess.Popen[bytes]":
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)


def test_what_a_process_prints_comes_with_its_errors() -> None:
    process = begun("import sys; print(input()[::-1], end=''); sys.exit('no')")
    assert communicate(process, b"abc", timeout_s=LIMIT_S) == (b"cba", b"no\n")
    assert process.returncode == 1


def test_a_process_that_is_not_done_in_time_is_killed_with_what_it_started(tmp_path: Path) -> None:
    its = tmp_path / "pid"
    process = begun(
        "import pathlib, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        f"pathlib.Path({str(its)!r}).write_text(str(child.pid))\n"
        "print('started', flush=True)\n"
        "child.wait()"
    )
    assert process.stdout is not None
    process.stdout.readline()
    with pytest.raises(subprocess.TimeoutExpired):
        communicate(process, b"", timeout_s=0.0)
    assert process.returncode is not None
    started = int(its.read_text())
    # Whoever adopted it may not have looked yet.
    assert not psutil.pid_exists(started) or psutil.Process(started).wait(LIMIT_S) is None
