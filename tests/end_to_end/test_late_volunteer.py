"""A plain function with real processes and steps that time cuts: one volunteer is killed, another comes late."""

import re
import signal
from pathlib import Path

import pytest

from tests.end_to_end.processes import ended_at_exit, fedlearn, final_digest, metrics_of, start, wait_for
from tests.patience import LIMIT_S

FIT = """
import numpy as np
import fedlearn

TARGET = np.linspace(-1.0, 1.0, 20, dtype=np.float32)


def loss(arrays):
    return float(((arrays["vector"] - TARGET) ** 2).mean()) - 1.0


task = fedlearn.function(loss, {"vector": np.zeros(20)}, settings={"learning_rate_schedule": "constant"})
"""
N_STEPS = 16
FLAGS = ["--task", "fit.py:task", "--group-size", "8", "--sigma", "0.05", "--learning-rate", "0.05"]
FLAGS += ["--population-limit", "1000000", "--time-per-step", "0.3", "--steps", str(N_STEPS)]


@pytest.mark.slow
def test_all_who_follow_a_task_hold_the_same_weights_to_the_last_bit(tmp_path: Path) -> None:
    (tmp_path / "fit.py").write_text(FIT)
    server = start("server.py", *FLAGS, "--volunteers", "0", "--port", "0", folder=tmp_path)
    with ended_at_exit(server):
        port, _ = wait_for(server, r"listening on 127\.0\.0\.1:(\d+)")
        address = ["--task", "fit.py:task", "--server", f"127.0.0.1:{port}", "--threads", "1", "--once"]
        steady = start("client.py", *address, "--name", "steady", folder=tmp_path)
        victim = start("client.py", *address, "--name", "victim", folder=tmp_path)
        with ended_at_exit(steady, victim):
            for _ in range(2):
                wait_for(server, "victim joined|steady joined")
            wait_for(server, r"^step +\d+")
            victim.send_signal(signal.SIGKILL)
            wait_for(server, "victim left")
            late = start("client.py", *address, "--name", "late", folder=tmp_path)
            with ended_at_exit(late):
                wait_for(server, "late joined")
                _, rest = wait_for(server, f"all {N_STEPS} steps are done")
                assert "drifted" not in rest
                assert server.wait(timeout=LIMIT_S) == 0
                recorded = metrics_of(tmp_path)
                assert {final_digest(steady), final_digest(late)} == {recorded[-1]["digest"]}
    assert [line["step"] for line in recorded] == list(range(N_STEPS))
    assert {line["volunteers"] for line in recorded} >= {1, 2}
    assert recorded[-1]["loss"] < recorded[0]["loss"] < 0.0  # it may be of either sign
    assert "equal to" in fedlearn("replay", "1", folder=tmp_path)
    assert "equal to" in fedlearn("replay", "1", "--step", "7", folder=tmp_path)
    resume(tmp_path)


def resume(folder: Path) -> None:
    """The run goes on where it ended, and all of it can be replayed."""
    server = start(
        "server.py",
        "--resume",
        "1",
        "--task",
        "fit.py:task",
        "--steps",
        str(N_STEPS + 4),
        "--volunteers",
        "1",
        "--port",
        "0",
        folder=folder,
    )
    with ended_at_exit(server):
        _, read = wait_for(server, f"all {N_STEPS + 4} steps are done")
        assert re.search(rf"from step {N_STEPS}$", read, re.MULTILINE)
        assert server.wait(timeout=LIMIT_S) == 0
    assert [line["step"] for line in metrics_of(folder)] == list(range(N_STEPS + 4))
    assert "equal to" in fedlearn("replay", "1", folder=folder)
    assert "equal to" in fedlearn("replay", "1", "--step", str(N_STEPS), folder=folder)
