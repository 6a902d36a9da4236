"""A forked process is what Python would have made of its command line."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.forking import Forked, forks
from tests.end_to_end.processes import output_of, run
from tests.patience import LIMIT_S, until

SHOWS = """
import os, sys
print(__name__, sys.argv, sys.path[:2], os.getcwd(), sorted(os.environ), os.getpgid(0), sys.stdin.read(), flush=True)
raise SystemExit(3)
"""
WAITS = "import time; print(flush=True); time.sleep(300)"
ASKS = "import subprocess, sys; subprocess.Popen([sys.executable, 'waits.py'], start_new_session=True).wait()"
ENDS = """
import os, sys
from tests.end_to_end.forking import Forked
print(Forked([sys.executable, "waits.py"], cwd=sys.argv[1]).pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("kind", [Forked, subprocess.Popen])
def test_program_finds_what_it_was_given(tmp_path: Path, kind: "type[subprocess.Popen[str]]") -> None:
    (tmp_path / "shows.py").write_text(SHOWS)
    command = [sys.executable, "shows.py", "--flag", "a b"]
    environ = {"PYTHONPATH": "/of/its/own", "LC_CTYPE": "C.UTF-8"}
    pipe = subprocess.PIPE
    with kind(command, cwd=tmp_path, env=environ, stdin=pipe, stdout=pipe, text=True) as process:
        said, _ = process.communicate("typed", timeout=LIMIT_S)
    its = f"['LC_CTYPE', 'PYTHONPATH'] {os.getpgid(0)} typed"
    assert said == f"__main__ ['shows.py', '--flag', 'a b'] ['{tmp_path}', '/of/its/own'] {tmp_path} {its}\n"
    assert process.returncode == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signal_ends_it_and_is_told(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "waits.py").write_text(WAITS)
    process = Forked([sys.executable, "waits.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert output_of(process).readline()
    assert process.poll() is None
    with process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(number)
    assert process.returncode == -number


def test_what_it_starts_is_forked_and_waited_for(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text(WAITS)
    (tmp_path / "asks.py").write_text(ASKS)
    with Forked([sys.executable, "asks.py"], cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert output_of(process).readline()
        (child,) = [other for other in psutil.Process().children(recursive=True) if os.getpgid(other.pid) == other.pid]
        assert "forking.py" in " ".join(child.cmdline())
        child.kill()
        assert process.wait(LIMIT_S) == 0


def test_it_ends_with_the_process_whose_test_began_it(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text(WAITS)
    command = [sys.executable, "-c", ENDS, str(tmp_path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == -signal.SIGKILL
    until(lambda: not psutil.pid_exists(int(done.stdout)))


def test_who_calls_and_says_nothing_ends_nobody_elses_process(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text(WAITS)
    with Forked([sys.executable, "waits.py"], cwd=tmp_path, stdout=subprocess.PIPE) as process:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
            line.connect(forks().address)
        assert run("-m", "fedlearn", "--version", folder=tmp_path).returncode == 0
        assert process.poll() is None
        process.kill()
