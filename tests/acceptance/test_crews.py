"""Crews of three, as real processes on loopback: what they compute, what they send, and what a death costs."""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.crews import STEPS_BY_MEMBERS, digests_of_parts, write_task
from tests.end_to_end.processes import ended_at_exit, final_digest, metrics_of, output_of, start, wait_for
from tests.faults.measures import until_step
from tests.patience import LIMIT_S

pytest.importorskip("torch")

SEATS = 3


def trained(folder: Path, *flags: str) -> list[dict[str, Any]]:
    """The steps of a run with its own volunteers."""
    folder.mkdir()
    write_task(folder)
    server = start("server.py", "--task", "task.py:task", "--port", "0", *STEPS_BY_MEMBERS, *flags, folder=folder)
    with ended_at_exit(server):
        said = output_of(server).read()
        assert server.wait() == 0, said
    return metrics_of(folder)


@pytest.mark.long
def test_a_crew_of_three_takes_the_steps_of_a_lone_volunteer_to_the_bit(tmp_path: Path) -> None:
    crew = trained(tmp_path / "crew", "--seats", "3", "--volunteers", "3", "--steps", "20")
    alone = trained(tmp_path / "alone", "--seats", "1", "--volunteers", "1", "--steps", "20")
    assert [step["digest"] for step in crew] == [step["digest"] for step in alone]
    assert len(crew) == 20
    assert crew[-1]["loss"] < crew[0]["loss"]
    print(f"20 steps with digest {crew[-1]['digest']}; loss {crew[0]['loss']:.3f} to {crew[-1]['loss']:.3f}")


def joined(folder: Path, port: str, name: str) -> "subprocess.Popen[str]":
    flags = ("--server", f"127.0.0.1:{port}", "--name", name, "--once", "--priority", "normal", "--threads", "1")
    return start("client.py", *flags, folder=folder)


def stalled_at(folder: Path) -> int:
    """The step that is open, once two reports of the server in a row say that nothing more of it came in."""
    deadline, before = time.monotonic() + LIMIT_S, None
    while time.monotonic() < deadline:
        status = json.loads((folder / "trainingRuns/1/status.json").read_text())
        if (opened := status["open_step"]) is not None:
            now = (status["time"], status["step"], opened["members"])
            if before is None or before[1:] != now[1:]:
                before = now
            elif before[0] < now[0]:
                return int(status["step"])
        time.sleep(0.1)
    raise AssertionError("no step was open in which nothing happened")


@pytest.mark.long
def test_a_killed_stem_is_replaced_and_training_goes_on_within_two_steps(tmp_path: Path) -> None:
    write_task(tmp_path)
    flags = ("--seats", str(SEATS), "--volunteers", "0", "--port", "0", "--population-limit", "1024")
    server = start("server.py", "--task", "task.py:task", *STEPS_BY_MEMBERS, *flags, folder=tmp_path)
    with ended_at_exit(server):
        port, _ = wait_for(server, r"listening on 127\.0\.0\.1:(\d+)")
        clients = [joined(tmp_path, port, f"volunteer-{number}") for number in range(SEATS)]
        with ended_at_exit(*clients):
            places = [int(wait_for(client, r"this machine holds part (\d) of 3")[0]) - 1 for client in clients]
            stem = places.index(1)
            until_step(tmp_path, 3)
            clients[stem].send_signal(signal.SIGSTOP)  # so that it is sure to be in mid-step
            broken = stalled_at(tmp_path)
            clients[stem].kill()
            clients[stem].wait()
            clients[stem] = joined(tmp_path, port, "newcomer")
            with ended_at_exit(clients[stem]):
                wait_for(clients[stem], "this machine holds part 2 of 3")
                until_step(tmp_path, broken + 3)
                server.send_signal(signal.SIGINT)
                digests = dict(zip(places, map(final_digest, clients), strict=True))
                assert server.wait(timeout=LIMIT_S) == 0
    members = {step["step"]: step["members"] for step in metrics_of(tmp_path)}
    print(f"killed in step {broken}, whose neighbours have {[members[broken + i] for i in range(-1, 4)]} members")
    assert all(members[step] == 1024 for step in (broken + 2, broken + 3))
    assert [digests[place] for place in range(SEATS)] == digests_of_parts(tmp_path, seats=SEATS)
