"""What the owner of a lent machine notices of it, and can do about it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.processes import ROOT, ended_at_exit, output_of, start, wait_for
from tests.patience import LIMIT_S

TASK = """
import numpy as np
import fedlearn


def loss(arrays):
    return float((arrays["vector"] ** 2).mean())


task = fedlearn.function(loss, {"vector": np.ones(64)}, covariance=False)
"""
FLAGS = ["--task", "fit.py:task", "--group-size", "8", "--sigma", "0.05", "--learning-rate", "0.01"]
FLAGS += ["--population-limit", "1000000", "--time-per-step", "0.5", "--volunteers", "0", "--port", "0"]
MEASURED_S = 3.0
A_SLICE = 0.25 / MEASURED_S
"""Of the time that is measured, which may begin and end anywhere."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server without volunteers of its own, and its port."""
    (tmp_path / "fit.py").write_text(TASK)
    server = start("server.py", *FLAGS, "--sample-time", "0", folder=tmp_path)
    with ended_at_exit(server):
        port, _ = wait_for(server, r"listening on 127\.0\.0\.1:(\d+)")
        yield server, port


def flags(port: str, *more: str) -> list[str]:
    server = ["--server", f"127.0.0.1:{port}", "--name", "Ada", "--threads", "1"]
    return ["--task", "fit.py:task", *server, "--on-battery", "yes", *more]


@contextmanager
def joined(folder: Path, port: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    client = start("client.py", *flags(port, *more), folder=folder)
    with ended_at_exit(client):
        wait_for(client, "joined run 1")
        yield client


def cpu_share(process: subprocess.Popen[str]) -> float:
    """Of the machine's processors that a process takes."""
    watched = psutil.Process(process.pid)

    def taken_s() -> float:
        times = watched.cpu_times()
        return times.user + times.system

    began, before_s = time.monotonic(), taken_s()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=MEASURED_S)
    return (taken_s() - before_s) / (time.monotonic() - began) / len(os.sched_getaffinity(0))


def test_client_takes_no_more_than_its_share_of_the_processors(
    server: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    with joined(tmp_path, server[1], "--max-cpu", "20%") as client:
        share = cpu_share(client)
        print(f"--max-cpu 20%: {share:.1%} of the processors")
        assert 0.0 < share < 0.2 + A_SLICE


def test_client_lets_everybody_else_go_first(server: tuple[subprocess.Popen[str], str], tmp_path: Path) -> None:
    with joined(tmp_path, server[1]) as client:
        process = psutil.Process(client.pid)
        assert process.nice() == 19
        assert process.ionice().ioclass == psutil.IOPRIO_CLASS_IDLE
        # Threads have priorities of their own on Linux, and trials run on threads.
        of_threads = [os.getpriority(os.PRIO_PROCESS, thread.id) for thread in process.threads()]
        busiest = max(process.threads(), key=lambda thread: thread.user_time)
        assert os.getpriority(os.PRIO_PROCESS, busiest.id) == 19, of_threads


def test_client_pauses_and_goes_on_by_signal(server: tuple[subprocess.Popen[str], str], tmp_path: Path) -> None:
    with joined(tmp_path, server[1]) as client:
        client.send_signal(signal.SIGUSR1)
        wait_for(client, "paused: by hand")
        wait_for(server[0], "Ada left: paused: by hand")
        share = cpu_share(client)
        print(f"paused: {share:.1%} of the processors")
        assert share < 0.02
        client.send_signal(signal.SIGUSR2)
        wait_for(client, "joined run 1")
        wait_for(server[0], "Ada joined")
        client.send_signal(signal.SIGUSR1)
        wait_for(client, "takes part again when it may")
        client.send_signal(signal.SIGTERM)
        assert client.wait(timeout=LIMIT_S) == 0


def test_client_that_is_not_lent_at_this_hour_does_not_connect(
    server: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    hour = time.localtime().tm_hour
    client = start("client.py", *flags(server[1], "--hours", f"{(hour + 2) % 24}-{(hour + 3) % 24}"), folder=tmp_path)
    with ended_at_exit(client):
        line, _ = wait_for(client, "paused: .*")
        assert "lent from" in line
        client.send_signal(signal.SIGINT)
        assert client.wait(timeout=LIMIT_S) == 0
        assert "connecting" not in output_of(client).read()


def test_client_in_a_terminal_pauses_goes_on_and_leaves_by_key(
    server: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    # In a process of its own, since a fork is no good for one with threads.
    in_terminal = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
    joins = [sys.executable, str(ROOT / "client.py"), *flags(server[1])]
    command = [sys.executable, "-c", in_terminal, "sh", "-c", '"$@"; stty -a', "sh", *joins]
    client = subprocess.Popen(command, cwd=tmp_path, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert client.stdin is not None
    with client.stdin, ended_at_exit(client):

        def press(keys: str) -> None:
            assert client.stdin is not None
            client.stdin.write(keys)
            client.stdin.flush()

        wait_for(client, "press p to pause and go on, q to leave")
        wait_for(client, "joined run 1")
        press("p")
        wait_for(client, "paused: by hand")
        press("xp")
        wait_for(client, "joined run 1")
        press("q")
        wait_for(client, "the volunteer left; this machine took")
        modes = output_of(client).read()
        assert " icanon" in modes
        assert " echo " in modes
        assert client.wait(timeout=LIMIT_S) == 0
