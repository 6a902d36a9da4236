import os
import time
from pathlib import Path

import msgspec
import pytest

from fedlearn.coordination.status import RunStatus, StepStatus
from fedlearn.server import viewing as module
from fedlearn.server.examination import Examination
from fedlearn.server.viewing import INTERVAL_S, View
from fedlearn.storage.metrics import StepMetrics
from fedlearn.storage.runs import RunFolder
from fedlearn.storage.status import read_status

STATUS = RunStatus(
    run="7",
    state="running",
    step=4,
    steps=0,
    run_left_s=None,
    members_per_s=5.0,
    open_step=StepStatus(1.0, 8, 64),
    volunteers=(),
)
METRICS = StepMetrics(
    step=3,
    loss=2.5,
    shown={"bits_per_character": 3.6},
    members=64,
    work_per_s=1000.0,
    volunteers=1,
    bytes_in=0,
    bytes_out=0,
    digest="",
    time=0.0,
)


@pytest.fixture
def view(tmp_path: Path) -> View:
    return View(RunFolder(tmp_path).status, "tokens")


def read(folder: Path) -> RunStatus:
    status = read_status(folder / "status.json", RunStatus)
    assert status is not None
    return status


def test_what_the_server_knows_completes_what_the_coordinator_does(view: View, tmp_path: Path) -> None:
    before = time.time()
    view.completed(STATUS, (1000, 5000), now=10.0)
    view.stepped(METRICS)
    view.examined(Examination({"accuracy": 0.5}, "It was"))
    view.examined(Examination({"accuracy": 0.75}, ""))
    assert view.write(view.completed(STATUS, (1600, 9000), now=12.0)) == ""
    shown = read(tmp_path)
    assert before <= shown.time <= time.time()
    assert shown == msgspec.structs.replace(
        STATUS,
        pid=os.getpid(),
        time=shown.time,
        unit="tokens",
        loss=2.5,
        shown={"bits_per_character": 3.6},
        work_per_s=1000.0,
        bytes_in_per_s=300.0,
        bytes_out_per_s=2000.0,
        validation={"accuracy": 0.75},
        sample="It was",
    )


def test_run_that_ended_says_why_and_does_nothing_any_more(view: View, tmp_path: Path) -> None:
    view.stepped(METRICS)
    view.write(view.completed(STATUS, (0, 0), now=10.0, ended="all 4 steps are done"))
    shown = read(tmp_path)
    assert (shown.state, shown.reason, shown.open_step) == ("ended", "all 4 steps are done", None)
    assert (shown.members_per_s, shown.work_per_s, shown.loss) == (0.0, 0.0, 2.5)
    # What was under way when it ended comes too late.
    view.write(view.completed(STATUS, (0, 0), now=11.0))
    assert read(tmp_path).state == "ended"


def test_it_is_written_at_most_once_an_interval(view: View) -> None:
    times = [50.0, 50.0 + INTERVAL_S - 0.01, 50.0 + INTERVAL_S, 50.0 + 2 * INTERVAL_S - 0.01]
    assert [view.is_due(now) for now in times] == [True, False, True, False]


def test_figures_that_are_no_numbers_can_be_read_again(view: View, tmp_path: Path) -> None:
    view.stepped(msgspec.structs.replace(METRICS, loss=None, shown={}))
    view.examined(Examination({"accuracy": float("nan")}, ""))
    view.write(view.completed(STATUS, (0, 0), now=10.0))
    assert (read(tmp_path).loss, read(tmp_path).validation) == (None, {"accuracy": None})


def test_what_can_not_be_written_is_said_once_and_again_after_it_could(view: View, tmp_path: Path) -> None:
    status = view.completed(STATUS, (0, 0), now=10.0)
    (tmp_path / "status.json").mkdir()
    said = [view.write(status), view.write(status)]
    (tmp_path / "status.json").rmdir()
    said += [view.write(status)]
    (tmp_path / "status.json").unlink()
    (tmp_path / "status.json").mkdir()
    said += [view.write(status)]
    assert said[1:3] == ["", ""]
    assert said[0] == said[3]
    assert "status.json: could not be written" in said[0]
    assert said[0].endswith("; until then viewers see what was")


def test_sample_that_is_no_text_ends_nothing(view: View) -> None:
    view.examined(Examination({}, "\ud800"))
    assert "surrogates" in view.write(view.completed(STATUS, (0, 0), now=10.0))


def test_nobody_waits_for_a_disk_that_hangs(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    is_due_meanwhile = []

    def hang(*_: object) -> None:
        is_due_meanwhile.append(view.is_due(1000.0))

    monkeypatch.setattr(module, "write_status", hang)
    view.write(view.completed(STATUS, (0, 0), now=10.0))
    assert is_due_meanwhile == [False]
    assert view.is_due(1000.0)


def test_without_a_path_nothing_is_due_or_written(tmp_path: Path) -> None:
    view = View(None, "tokens")
    assert not view.is_due(1e9)
    assert view.write(STATUS) == ""
    assert list(tmp_path.iterdir()) == []
