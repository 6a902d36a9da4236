"""Processes are small scripts here, in place of Python: what they are given and how they end is what counts."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedlearn.config import RunConfig, Schema
from fedlearn.server import local_volunteers
from fedlearn.server.local_volunteers import TERMS, LocalVolunteers
from fedlearn.system.waiting import WaitingProcess
from fedlearn.tasks.user.task_options import TaskOptions
from tests.patience import until

Started = Callable[..., LocalVolunteers]

STAYS = "echo started $$; exec sleep 60"


def config_of(**settings: Any) -> RunConfig:  # noqa: ANN401 (values of any setting)
    return Schema(TaskOptions).build({"volunteers": 1, "threads": 3, **settings})


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """Starts volunteers that run a line of shell each; the test's end stops them."""
    monkeypatch.setattr(local_volunteers, "STOP_S", 0.05)
    started = []

    def start(
        script: str,
        *,
        task: str = "",
        ahead: WaitingProcess | None = None,
        clock: Callable[[], float] = time.monotonic,
        **settings: Any,  # noqa: ANN401
    ) -> LocalVolunteers:
        shell = tmp_path / "shell"
        shell.write_text(f"#!/bin/sh\n{script}\n")
        shell.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(shell))
        config = config_of(**settings)
        started.append(LocalVolunteers(tmp_path, config, server="far:4711", task=task, ahead=ahead, clock=clock))
        return started[-1]

    yield start
    for volunteers in started:
        volunteers.stop()


def log_of(folder: Path, number: int = 1) -> str:
    return (folder / f"local-{number}.log").read_text()


def pid_of(folder: Path) -> int:
    """Of the volunteer, once it has started."""
    until(lambda: log_of(folder).endswith("\n"))
    found = re.search(r"started (\d+)", log_of(folder))
    assert found is not None
    return int(found.group(1))


def ended(volunteers: LocalVolunteers, n: int = 1) -> list[str]:
    """What is said of `n` of them."""
    said: list[str] = []

    def are_all() -> bool:
        said.extend(volunteers.problems())
        return len(said) >= n

    until(are_all)
    return said


def test_volunteer_is_told_whom_to_join_and_with_what(started: Started, tmp_path: Path) -> None:
    ended(started('echo "$@"', device="cuda"))
    expected = (
        "-P -m fedlearn join --server far:4711 --name local-1 --threads 3 --once "
        f"--identity {tmp_path / 'identity.pem'} --device cuda {' '.join(TERMS)}\n"
    )
    assert log_of(tmp_path) == expected


def test_volunteer_is_told_the_task_where_it_needs_one(started: Started, tmp_path: Path) -> None:
    ended(started('echo "$@"', task="/here/mine.py:task"))
    assert log_of(tmp_path).endswith(" --task /here/mine.py:task\n")


def test_each_volunteer_has_a_name_and_a_log(started: Started, tmp_path: Path) -> None:
    ended(started('echo "$8"; echo wrong >&2', volunteers=3), 3)
    assert [log_of(tmp_path, number) for number in (1, 2, 3)] == [f"local-{n}\nwrong\n" for n in (1, 2, 3)]


def test_volunteers_give_way_to_the_server(started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    popen, given = subprocess.Popen, []

    def spied(*arguments: Any, **settings: Any) -> Any:  # noqa: ANN401
        given.append(settings)
        return popen(*arguments, **settings)

    monkeypatch.setattr(subprocess, "Popen", spied)
    monkeypatch.setattr(local_volunteers, "NICENESS", 19)  # tests themselves give way a little less
    started(STAYS)
    assert os.getpriority(os.PRIO_PROCESS, pid_of(tmp_path)) == 19
    assert "preexec_fn" not in given[0]  # which could hang beside the server's threads


def test_interrupt_of_the_terminal_is_for_the_server_alone(started: Started, tmp_path: Path) -> None:
    started(STAYS)
    assert os.getsid(pid_of(tmp_path)) != os.getsid(0)


def test_volunteer_that_ends_by_itself_is_told_once(started: Started) -> None:
    volunteers = started("exit 7", volunteers=2, clock=lambda: 0.0)
    said = sorted(ended(volunteers, 2))
    assert said == [
        f"the local volunteer local-{n} ended with exit code 7; see local-{n}.log in the run folder; "
        "it is started again in 1 s"
        for n in (1, 2)
    ]
    assert volunteers.problems() == []


def test_what_a_volunteer_said_last_is_told(started: Started) -> None:
    (said,) = ended(started("echo one; echo \"No module named 'x'\"; echo; exit 1", clock=lambda: 0.0))
    assert said.startswith("the local volunteer local-1 ended with exit code 1: No module named 'x'; see local-1.log")


def test_volunteer_that_dies_is_started_again_with_the_same_words_and_ever_later(
    started: Started, tmp_path: Path
) -> None:
    now = [100.0]
    volunteers = started('echo "$@"; exit 7', clock=lambda: now[0])
    for n_deaths, pause_s in enumerate((1, 2, 4, 8), start=1):
        (line,) = ended(volunteers)
        assert line.endswith(f"it is started again in {pause_s} s")
        now[0] += pause_s - 0.1
        assert volunteers.problems() == []
        assert len(log_of(tmp_path).splitlines()) == n_deaths
        now[0] += 0.1
        assert volunteers.problems() == []
    (line,) = ended(volunteers)
    assert line.endswith("it is not started again")
    now[0] += 1e6
    assert volunteers.problems() == []
    assert len(set(log_of(tmp_path).splitlines())) == 1
    assert len(log_of(tmp_path).splitlines()) == 5


def test_volunteer_that_was_started_again_is_ended_with_the_others(started: Started, tmp_path: Path) -> None:
    now = [0.0]
    first, again = tmp_path / "first", tmp_path / "again"
    volunteers = started(
        f"test -e {first} || {{ touch {first}; exit 9; }}; echo $$ > {again}; exec sleep 60", clock=lambda: now[0]
    )
    ended(volunteers)
    now[0] += 1.0
    assert volunteers.problems() == []
    until(lambda: again.exists() and again.read_text().endswith("\n"))
    volunteers.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(int(again.read_text()), 0)


def test_volunteer_that_goes_on_is_no_problem(started: Started, tmp_path: Path) -> None:
    volunteers = started(STAYS)
    pid_of(tmp_path)
    assert volunteers.problems() == []


def test_volunteers_that_do_not_go_are_ended(started: Started, tmp_path: Path) -> None:
    volunteers = started(STAYS)
    pid = pid_of(tmp_path)
    volunteers.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    volunteers.stop()


def test_volunteer_that_was_started_before_its_run_is_the_first(started: Started, tmp_path: Path) -> None:
    order = tmp_path / "order"
    script = f'read -r order; echo "$order" > {order}; cat; exit 4'
    ahead = WaitingProcess.start(command=["sh", "-c", script])
    volunteers = started('echo "$@"', volunteers=2, ahead=ahead, clock=lambda: 0.0)
    assert sorted(line.split(";")[0] for line in ended(volunteers, 2)) == [
        "the local volunteer local-1 ended with exit code 4",
        "the local volunteer local-2 ended with exit code 0",
    ]
    told = json.loads(order.read_text())
    assert told["arguments"][:5] == ["join", "--server", "far:4711", "--name", "local-1"]
    assert told["log"] == str(tmp_path / "local-1.log")
    assert f"-m fedlearn {' '.join(told['arguments'])}\n".replace("local-1", "local-2") in log_of(tmp_path, 2)


def test_volunteer_that_died_before_its_run_is_started_anew(started: Started, tmp_path: Path) -> None:
    ahead = WaitingProcess.start(command=["false"])
    ahead.process.wait()
    ended(started('echo "$@"', ahead=ahead))
    ahead.close()
    assert "--name local-1" in log_of(tmp_path)


def test_volunteer_that_is_started_before_its_run_gives_way_and_waits_by_itself(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_volunteers, "NICENESS", 19)
    started(STAYS, volunteers=0)
    monkeypatch.setenv("SHOWN", str(tmp_path / "shown"))
    (tmp_path / "shell").write_text('#!/bin/sh\necho "$@" "$no_proxy" > "$SHOWN"; echo heard; read -r order\n')
    ahead = local_volunteers.volunteer_ahead()
    until(lambda: (tmp_path / "shown").exists() and (tmp_path / "shown").read_text().endswith("\n"))
    assert (tmp_path / "shown").read_text() == "-P -m fedlearn.commands.ahead join *\n"
    assert os.getpriority(os.PRIO_PROCESS, ahead.process.pid) == 19
    assert os.getsid(ahead.process.pid) != os.getsid(0)
    ahead.close()
    assert ahead.process.wait() == 1


def test_run_may_have_no_volunteers_of_its_own(started: Started, tmp_path: Path) -> None:
    volunteers = started("exit 7", volunteers=0)
    assert volunteers.problems() == []
    assert not list(tmp_path.glob("*.log"))
