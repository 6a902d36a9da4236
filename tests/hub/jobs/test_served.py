import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fedlearn.hub.jobs import served as module
from fedlearn.hub.jobs.records import Process
from fedlearn.hub.jobs.served import GONE, Served, ServedNext
from fedlearn.server.supervision import Serving
from fedlearn.system import waiting as waiting_module

PROGRAM = """
import json, os, sys, time
line = sys.stdin.readline()
if not line:
    sys.exit()
order = json.loads(line)
sys.argv[1:] = order["arguments"]
for descriptor in (1, 2):
    os.dup2(os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
print("begins", os.environ.get("FEDLEARN_TOKEN"), os.environ["PYTHONUNBUFFERED"], flush=True)
if sys.argv[1] == "tells":
    with os.fdopen(int(sys.argv[3]), "wb") as stream:
        stream.write(b'{"folder": "runs/1", "port": 5001}')
elif sys.argv[1] == "ends":
    sys.exit(3)
elif sys.argv[1] == "babbles":
    with os.fdopen(int(sys.argv[3]), "wb") as stream:
        stream.write(b"x" * 100000)
time.sleep(60)
"""


def stand_in(monkeypatch: pytest.MonkeyPatch, *command: str) -> None:
    """Puts a program in the place of fedlearn."""
    monkeypatch.setattr(waiting_module, "program", lambda *_, **__: list(command))


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Served]:
    """Starts a program in the place of fedlearn."""
    (tmp_path / "program.py").write_text(PROGRAM)
    stand_in(monkeypatch, sys.executable, str(tmp_path / "program.py"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDLEARN_TOKEN", "a secret of the hub's")
    return lambda how: ServedNext().begin([how], log=tmp_path / "log")


def soon(what: Callable[[], object]) -> object:
    ticks = threading.Event()
    for _ in range(3000):
        if (found := what()) is not None:
            return found
        ticks.wait(0.01)
    raise AssertionError("it never came")


def test_a_server_says_once_which_run_it_has(start: Callable[[str], Served], tmp_path: Path) -> None:
    served = start("tells")
    try:
        assert soon(served.report) == Serving("runs/1", 5001)
        assert (served.report(), served.poll()) == (None, None)
        assert (tmp_path / "log").read_text() == "begins None 1\n"
        served.terminate()
        assert soon(served.poll) == -15
    finally:
        served.kill()


def test_a_server_that_ends_before_it_says_anything_has_said_nothing(start: Callable[[str], Served]) -> None:
    served = start("ends")
    assert soon(served.poll) == 3
    assert (served.report(), served.report()) == (None, None)


def test_what_is_no_word_of_a_server_is_none(start: Callable[[str], Served], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REPORT_BYTES", 100)
    served = start("babbles")
    try:
        soon(lambda: served._reading is None or (served.report(), None)[1])
        assert served._reading is None
    finally:
        served.kill()


def test_a_process_is_found_again_by_its_number_and_its_beginning(start: Callable[[str], Served]) -> None:
    served = start("tells")
    try:
        found = Served.find(served.process)
        assert found is not None
        assert found.poll() is None
        assert Served.find(Process(served.process.pid, served.process.created - 1)) is None
        found.terminate()
        assert soon(found.poll) == GONE
        found.terminate()  # nobody else of that number
        found.kill()
        assert Served.find(served.process) is None
    finally:
        served.kill()


def test_a_program_that_can_not_be_started_leaves_no_pipe(
    start: Callable[[str], Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, "/nowhere/python")
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    with pytest.raises(OSError, match="nowhere"):
        start("tells")
    assert before == (len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0)


@pytest.mark.usefixtures("start")
def test_a_process_that_nobody_needs_ends_with_its_hub() -> None:
    waiting = ServedNext()
    assert waiting.is_alive
    process = waiting._waiting.process
    waiting.close()
    assert process.returncode == 0
    assert not waiting.is_alive
