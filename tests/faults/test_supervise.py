"""A server that is killed outright, and the process that starts it again."""

import signal
import time
from pathlib import Path

import psutil

from tests.end_to_end.processes import ended_at_exit, fedlearn, metrics_of, start_anew, wait_for
from tests.patience import LIMIT_S

TASK = """
import numpy as np
import fedlearn

task = fedlearn.function(lambda a: float((a["vector"] ** 2).mean()), {"vector": np.ones(20)}, covariance=False)
"""
FLAGS = ["--task", "fit.py:task", "--group-size", "8", "--sigma", "0.05", "--learning-rate", "0.01", "--port", "0"]
FLAGS += ["--population-limit", "64", "--time-per-step", "1", "--volunteers", "1", "--sample-time", "0"]


def test_servers_own_volunteer_is_back_after_it_was_killed(tmp_path: Path) -> None:
    (tmp_path / "fit.py").write_text(TASK)
    server = start_anew("server.py", *FLAGS, folder=tmp_path)
    with ended_at_exit(server):
        wait_for(server, r"^step +\d+")
        (volunteer,) = psutil.Process(server.pid).children()
        volunteer.kill()
        killed = time.monotonic()
        wait_for(server, "local-1 ended with exit code -9; .* it is started again in 1 s")
        wait_for(server, r"^step +\d+")
        took_s = time.monotonic() - killed
        print(f"killed, and took part again after {took_s:.1f} s")
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=LIMIT_S) == 0


FIRST = 500


def test_run_goes_on_by_itself_when_its_server_is_killed(tmp_path: Path) -> None:
    (tmp_path / "fit.py").write_text(TASK)
    supervisor = start_anew("server.py", *FLAGS, "--supervise", "--step-num", str(FIRST), folder=tmp_path)
    with ended_at_exit(supervisor):
        port, _ = wait_for(supervisor, r"listening on 127\.0\.0\.1:(\d+)")
        wait_for(supervisor, r"^step +\d+")
        (server,) = [child for child in psutil.Process(supervisor.pid).children() if "serve" in child.cmdline()]
        server.kill()
        killed = time.monotonic()
        wait_for(supervisor, "the server was ended by SIGKILL; it is restarted in 1 s")
        again, _ = wait_for(supervisor, r"listening on 127\.0\.0\.1:(\d+)")
        wait_for(supervisor, r"^step +\d+")
        took_s = time.monotonic() - killed
        print(f"killed, and the next step was taken after {took_s:.1f} s")
        assert again == port
        supervisor.send_signal(signal.SIGINT)
        wait_for(supervisor, "the server was stopped")
        assert supervisor.wait(timeout=LIMIT_S) == 0
    steps = [line["step"] for line in metrics_of(tmp_path)]
    # A server that is killed may have journalled a step whose line it had not written.
    assert steps[0] in (FIRST, FIRST + 1)
    assert len(steps) >= steps[-1] - FIRST
    assert "equal to" in fedlearn("replay", "1", folder=tmp_path)
    assert not (tmp_path / "trainingRuns" / "2").exists()
