"""Children that die, end, or must be ended; real processes, and a clock that is turned."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fedlearn.launch.launchers.local import Children
from fedlearn.system.children import NO_ANSWER, WRONG_USAGE
from tests.patience import LIMIT_S

FOREVER = "import signal; signal.pause()"


class Scene:
    """Children, each a program of Python's, and what was said of them."""

    def __init__(self, *programs: str) -> None:
        self.said: list[str] = []
        self.now = 0.0
        commands = [(f"c{number}", [sys.executable, "-c", program]) for number, program in enumerate(programs)]
        self.children = Children(commands, say=self.said.append, clock=lambda: self.now)

    def pids(self) -> list[int]:
        return [int(line.rpartition(" ")[2]) for line in self.said if " is process " in line]

    def look_when_ended(self, pid: int) -> bool:
        """Looks once the child has ended and nobody has looked at it yet."""
        process = psutil.Process(pid)
        deadline = threading.Event()
        while process.status() != psutil.STATUS_ZOMBIE:
            assert not deadline.wait(0.005)
        return self.children.look()


@pytest.fixture
def scenes() -> Iterator[list[Scene]]:
    """Whose children are ended with the test."""
    made: list[Scene] = []
    yield made
    for scene in made:
        scene.children.stop()


def begun(scenes: list[Scene], *programs: str) -> Scene:
    scenes.append(Scene(*programs))
    assert scenes[-1].children.look()
    return scenes[-1]


def test_child_that_dies_is_started_again_after_a_pause(scenes: list[Scene]) -> None:
    scene = begun(scenes, FOREVER)
    (first,) = scene.pids()
    assert os.getsid(first) != os.getsid(0), "Ctrl-C is not for the children"
    os.kill(first, signal.SIGKILL)
    assert scene.look_when_ended(first)
    assert scene.said[-1] == "c0 was ended by SIGKILL; it is started again in 1 s"
    scene.now = 0.9
    scene.children.look()
    assert scene.pids() == [first]
    scene.now = 1.0
    scene.children.look()
    assert len(scene.pids()) == 2
    assert psutil.pid_exists(scene.pids()[1])


def test_child_that_dies_at_once_again_and_again_is_given_up(scenes: list[Scene]) -> None:
    scene = begun(scenes, "raise SystemExit(1)")
    while scene.look_when_ended(scene.pids()[-1]):
        scene.now += 60.0 if "started again" in scene.said[-1] else 0.0
        scene.children.look()
    assert len(scene.pids()) == 5
    assert scene.said[-1] == "c0 ended with exit code 1 again and again; it is not started any more"


@pytest.mark.parametrize("code", [0, WRONG_USAGE, NO_ANSWER])
def test_child_that_ended_well_or_was_called_wrongly_or_found_no_server_is_not_started_again(
    scenes: list[Scene], code: int
) -> None:
    scene = begun(scenes, f"raise SystemExit({code})")
    assert not scene.look_when_ended(scene.pids()[0])
    assert len(scene.said) == 1


def test_one_that_is_left_is_waited_for(scenes: list[Scene]) -> None:
    scene = begun(scenes, "", FOREVER)
    assert scene.look_when_ended(scene.pids()[0])


@pytest.mark.parametrize(("programs", "code"), [(["", ""], 0), (["", "raise SystemExit(2)"], 1)])
def test_run_lasts_until_all_have_ended_and_says_whether_well(programs: list[str], code: int) -> None:
    commands = [(str(number), [sys.executable, "-c", program]) for number, program in enumerate(programs)]
    assert Children(commands, say=lambda _: None).run() == code


def test_signal_ends_all_also_those_that_will_not_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlearn.launch.launchers.local._STOP_S", 0.5)
    stubborn = (
        "import pathlib, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"pathlib.Path({str(tmp_path / 'ready')!r}).touch(); signal.pause()"
    )
    said: list[str] = []
    children = Children(
        [("a", [sys.executable, "-c", FOREVER]), ("b", [sys.executable, "-c", stubborn])], say=said.append
    )

    def interrupt() -> None:
        waiting = threading.Event()
        while not (tmp_path / "ready").exists():
            waiting.wait(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    assert children.run() == 0
    thread.join(LIMIT_S)
    pids = [int(line.rpartition(" ")[2]) for line in said]
    assert len(pids) == 2
    assert not any(psutil.pid_exists(pid) for pid in pids)
