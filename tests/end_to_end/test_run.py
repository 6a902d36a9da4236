"""A whole run of the recurrent network with real processes: server.py, client.py, and the commands that look at it."""

import re
import signal
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

import pytest

from tests.end_to_end.processes import ended_at_exit, fedlearn, final_digest, metrics_of, start, wait_for
from tests.patience import LIMIT_S, until

FLAGS = [
    *("--port", "0", "--threads", "1", "--perturb", "weights", "--hidden-size", "32", "--group-size", "16"),
    *("--population-limit", "512", "--time-per-step", "60", "--sample-time", "2"),
]
"""Steps of as many members on any machine, so that it learns as much on a busy one."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of 30 steps or more, in which one client was killed mid-step and another joined late."""
    folder = tmp_path_factory.mktemp("end_to_end")
    server = start("server.py", "--volunteers", "0", *FLAGS, folder=folder)
    with ended_at_exit(server):
        port, _ = wait_for(server, r"listening on 127\.0\.0\.1:(\d+)")
        address = ["--server", f"127.0.0.1:{port}", "--threads", "1", "--once"]
        steady = start("client.py", *address, "--name", "steady", folder=folder)
        victim = start("client.py", *address, "--name", "victim", folder=folder)
        with ended_at_exit(steady, victim):
            wait_for(server, "victim joined|steady joined")
            wait_for(server, "victim joined|steady joined")
            wait_for(server, r"^step +\d+")
            victim.send_signal(signal.SIGKILL)
            wait_for(server, "victim left")
            late = start("client.py", *address, "--name", "late", folder=folder)
            with ended_at_exit(late):
                wait_for(server, "late joined")
                n_before = len(metrics_of(folder))
                until(lambda: any(line["volunteers"] == 2 for line in metrics_of(folder)[max(30, n_before) :]))
                until(lambda: any(line.get("validation") for line in metrics_of(folder)))
                server.send_signal(signal.SIGINT)
                _, rest = wait_for(server, "the server was stopped")
                assert "drifted" not in rest
                assert server.wait(timeout=LIMIT_S) == 0
                digests = {final_digest(steady), final_digest(late), str(metrics_of(folder)[-1]["digest"])}
                assert len(digests) == 1
    return folder


def test_loss_falls_and_every_step_is_recorded(trained: Path) -> None:
    metrics = metrics_of(trained)
    assert [line["step"] for line in metrics] == list(range(len(metrics)))
    bits = [line["shown"]["bits_per_character"] for line in metrics]  # of each step's own rows, a tenth up or down
    assert fmean(bits[-5:]) < fmean(bits[:5]) - 0.2
    assert any("bits_per_character" in line.get("validation", {}) for line in metrics)


def test_traffic_stays_within_its_budget(trained: Path) -> None:
    ratios = []
    for before, line in pairwise(metrics_of(trained)):
        # While a step is open its losses come in and the Update of the step before goes out, to both clients.
        needed = 4 * int(line["members"]) + 2 * (int(before["members"]) + 200)
        ratios.append((int(line["bytes_in"]) + int(line["bytes_out"])) / needed)
    # The median leaves out the steps in which somebody joined and was sent text and weights.
    assert median(ratios) <= 1.2


def test_replay_equals_the_checkpoint(trained: Path) -> None:
    assert "equal to" in fedlearn("replay", "1", folder=trained)
    assert "equal to" in fedlearn("replay", "latest", "--step", "7", folder=trained)


def test_a_checkpoint_is_measured_listed_and_sampled(trained: Path) -> None:
    n_steps = len(metrics_of(trained))
    assert re.search(rf"step {n_steps}: [2-6]\.\d{{3}} bits/character", fedlearn("eval", "latest", folder=trained))
    assert re.search(rf"\b{n_steps} .*rnn, hidden size", fedlearn("runs", folder=trained))
    writing = ["sample", "1", "--prompt", "The ", "--length", "40", "--seed"]
    one, again, other = (fedlearn(*writing, seed, folder=trained) for seed in ("3", "3", "4"))
    assert one == again != other
    assert one.startswith("The ")
    assert fedlearn("sample", "1", "--prompt", "The ", "--length", "20", "--beams", "4", folder=trained)


def test_a_resumed_run_goes_on(trained: Path) -> None:
    n_steps = len(metrics_of(trained))
    changed = ["--port", "0", "--steps", str(n_steps + 5), "--volunteers", "1", "--threads", "1"]
    server = start("server.py", "--resume", "1", *changed, folder=trained)
    with ended_at_exit(server):
        _, read = wait_for(server, rf"all {n_steps + 5} steps are done.* --steps {2 * (n_steps + 5)}$")
        assert f"from step {n_steps}" in read
        assert "measured:" not in read  # what the run chose when it began stays
        assert server.wait(timeout=LIMIT_S) == 0
    assert [line["step"] for line in metrics_of(trained)] == list(range(n_steps + 5))
    assert "equal to" in fedlearn("replay", "1", folder=trained)
