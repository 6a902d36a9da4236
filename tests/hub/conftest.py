"""A hub over an empty folder, whose jobs' servers are scripted."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from fedlearn.hub.app import Hub
from fedlearn.hub.devices import Devices
from fedlearn.hub.jobs.datasets import Images
from fedlearn.hub.jobs.jobs import Jobs
from fedlearn.hub.jobs.records import Process
from fedlearn.hub.settings import HubSettings
from fedlearn.server.supervision import Serving
from fedlearn.storage.runs import RunFolder
from fedlearn.web.names import Names
from tests.board.folders import show_status

PORT = 4000
TEXT = {"model_config": {"type": "transformer"}, "dataset_config": {"source": "text.txt"}}
LAYERS = {"model_config": {"layer_sizes": [784, 16, 10]}, "dataset_config": {"name": "MNIST"}}


class Scripted:
    """Stands in for a server's process."""

    alive: dict[int, "Scripted"] = {}  # noqa: RUF012 (emptied by a fixture)
    started: list["Scripted"] = []  # noqa: RUF012

    def __init__(self, arguments: Sequence[str]) -> None:
        self.arguments = list(arguments)
        self.process = Process(1000 + len(Scripted.started), 1.0)
        self.code: int | None = None
        self.says: Serving | None = None
        self.calls: list[str] = []
        Scripted.alive[self.process.pid] = self

    @classmethod
    def find(cls, process: Process) -> "Scripted | None":
        return cls.alive.get(process.pid)

    def report(self) -> Serving | None:
        says, self.says = self.says, None
        return says

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self.calls.append("terminate")
        self.code = 0

    def kill(self) -> None:
        self.calls.append("kill")
        self.code = -9

    def begin(self, settings: HubSettings, run: str = "1", port: int = 5001) -> RunFolder:
        """Says which run it has."""
        folder = RunFolder(settings.runs / run)
        folder.path.mkdir(exist_ok=True)
        self.says = Serving(str(folder.path), port)
        return folder


class ScriptedNext:
    """Stands in for a process that waits for a job."""

    waiting: list["ScriptedNext"] = []  # noqa: RUF012 (emptied by a fixture)

    def __init__(self) -> None:
        self.is_alive = True
        ScriptedNext.waiting.append(self)

    def begin(self, arguments: Sequence[str], *, log: Path) -> Scripted:
        log.touch()
        ScriptedNext.waiting.remove(self)
        Scripted.started.append(Scripted(arguments))
        return Scripted.started[-1]

    def close(self) -> None:
        ScriptedNext.waiting.remove(self)


def some_digits() -> Images:
    """Stands in for scikit-learn's digits: images of their shapes, in their numbers."""
    pixels, labels = np.zeros((1797, 64), dtype=np.uint8), np.arange(1797) % 10
    return Images("scikit-learn's digits", pixels[:1438], labels[:1438], pixels[1438:], labels[1438:], is_stand_in=True)


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> list[Scripted]:
    Scripted.alive, Scripted.started, ScriptedNext.waiting = {}, [], []
    monkeypatch.setattr("fedlearn.hub.jobs.jobs.Served", Scripted)
    monkeypatch.setattr("fedlearn.hub.jobs.jobs.ServedNext", ScriptedNext)
    # What a job needs is as if installed, as nothing is trained; test_checks.py has what is missing.
    monkeypatch.setattr("fedlearn.hub.app.find_spec", lambda name: name)
    if find_spec("sklearn") is None:
        monkeypatch.setattr("fedlearn.hub.jobs.datasets.small_digits", some_digits)
    return Scripted.started


@pytest.fixture
def settings(tmp_path: Path) -> HubSettings:
    made = HubSettings.open(tmp_path / "hub", data=None, tasks=None, host="127.0.0.1", public_host="", tokens="auto")
    (made.data / "text.txt").write_text("some text\n" * 500)
    return made


@pytest.fixture
def devices() -> Devices:
    return Devices()


@pytest.fixture
def jobs(settings: HubSettings, devices: Devices) -> Jobs:
    return Jobs(settings, devices, clock=lambda: 0.0)


@pytest.fixture
def hub(settings: HubSettings) -> Hub:
    return Hub(settings, Names(PORT, is_public=False, given=("hub.example.org",)))


@pytest.fixture
def client(hub: Hub) -> Iterator[TestClient]:
    """On the hub's machine."""
    with TestClient(hub.app(), base_url=f"http://localhost:{PORT}", client=("127.0.0.1", 50000)) as opened:
        yield opened


def ended(folder: RunFolder, *, step: int, steps: int = 100, **changes: Any) -> None:  # noqa: ANN401
    show_status(folder, state="ended", step=step, steps=steps, **changes)
