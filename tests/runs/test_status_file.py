import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fedlearn.coordination.status import RunStatus, StepStatus
from fedlearn.runs import status_file as module
from fedlearn.runs.status_file import StatusFile, complete_ended
from fedlearn.storage.runs import RunFolder
from fedlearn.storage.status import read_status, write_status
from tests.patience import LIMIT_S

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
ENDED = msgspec.structs.replace(STATUS, state="ended", reason="all 4 steps are done")


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def file(tmp_path: Path, said: list[str]) -> Iterator[StatusFile]:
    file = StatusFile(RunFolder(tmp_path).status, said.append)
    yield file
    file.on_end("")


def write(file: StatusFile, status: RunStatus = STATUS) -> None:
    """Writes, and waits for the disk."""
    file.on_status(status)
    assert file._writing is not None
    file._writing.exception()


def test_run_that_ended_says_why(file: StatusFile, tmp_path: Path) -> None:
    file.on_status(STATUS)
    file.on_status(ENDED)
    file.on_end("all 4 steps are done")
    assert read_status(tmp_path / "status.json", RunStatus) == ENDED


def test_figures_that_are_no_numbers_can_be_read_again(file: StatusFile, tmp_path: Path) -> None:
    write(file, msgspec.structs.replace(STATUS, loss=None, validation={"accuracy": float("nan")}))
    shown = read_status(tmp_path / "status.json", RunStatus)
    assert shown is not None
    assert (shown.loss, shown.validation) == (None, {"accuracy": None})


def test_a_last_look_completes_the_status_of_a_run_that_has_ended(tmp_path: Path, said: list[str]) -> None:
    path, figures = RunFolder(tmp_path).status, {"accuracy": 0.5}
    write_status(path, msgspec.structs.replace(ENDED, validation={"accuracy": 0.25}, sample="It was"))
    complete_ended(path, figures, "", said.append)
    expected = msgspec.structs.replace(ENDED, validation=figures, sample="It was")
    assert read_status(path, RunStatus) == expected
    complete_ended(path, figures, "It is", said.append)
    assert read_status(path, RunStatus) == msgspec.structs.replace(expected, sample="It is")
    assert not said


def test_a_last_look_leaves_a_run_that_goes_on_as_it_is(tmp_path: Path, said: list[str]) -> None:
    path = RunFolder(tmp_path).status
    complete_ended(path, {"accuracy": 0.5}, "", said.append)
    assert not path.exists()
    write_status(path, STATUS)
    complete_ended(path, {"accuracy": 0.5}, "", said.append)
    assert read_status(path, RunStatus) == STATUS


def test_a_last_look_that_can_not_be_written_is_said(tmp_path: Path, said: list[str]) -> None:
    path = RunFolder(tmp_path).status
    write_status(path, ENDED)
    complete_ended(path, {}, "\ud800", said.append)
    assert "surrogates" in said[0]


def test_what_can_not_be_written_is_said_once_and_again_after_it_could(
    file: StatusFile, tmp_path: Path, said: list[str]
) -> None:
    path = tmp_path / "status.json"
    path.mkdir()
    write(file)
    write(file)
    write(file)
    assert len(said) == 1
    path.rmdir()
    write(file)
    path.unlink()
    path.mkdir()
    write(file)
    file.on_end("")
    assert said[0] == said[1]
    assert len(said) == 2
    assert "status.json: could not be written" in said[0]
    assert said[0].endswith("; until then viewers see what was")


def test_sample_that_is_no_text_ends_nothing(file: StatusFile, said: list[str]) -> None:
    write(file, msgspec.structs.replace(STATUS, sample="\ud800"))
    write(file)
    assert "surrogates" in said[0]


def test_nobody_waits_for_a_disk_that_hangs(file: StatusFile, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, written = threading.Event(), []

    def hang(_: Path, status: RunStatus) -> None:
        goes_on.wait(LIMIT_S)
        written.append(status.step)

    monkeypatch.setattr(module, "write_status", hang)
    for step in (1, 2, 3):
        file.on_status(msgspec.structs.replace(STATUS, step=step))
    goes_on.set()
    file.on_status(msgspec.structs.replace(ENDED, step=4))
    file.on_end("")
    assert written == [1, 4]
