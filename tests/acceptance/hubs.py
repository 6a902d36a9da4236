"""A hub, its devices, and what people type at it; all of them real processes on loopback."""

import json
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.end_to_end.forking import used
from tests.end_to_end.processes import ended_at_exit, start, wait_for
from tests.patience import LIMIT_S

LOOK_S = 0.1
Start = Callable[..., subprocess.Popen[str]]


def skip_without(*packages: str) -> None:
    """Skips a module's tests; what servers and devices import is not imported here, which would take seconds."""
    for package in packages:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed", allow_module_level=True)
        used.add(package)


class Answer(NamedTuple):
    """Of an HTTP request."""

    status: int
    content: Any


class Place(NamedTuple):
    """A hub that listens."""

    url: str
    folder: Path
    process: subprocess.Popen[str]

    def curl(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Answer:
        """`curl -X METHOD URL/PATH -H 'Content-Type: application/json' -d BODY`"""
        data = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} | dict(headers or {})
        request = urllib.request.Request(self.url + path, data=data, headers=sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as response:
                return Answer(response.status, read(response.read()))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, read(error.read()))

    def job(self, number: int = 1) -> dict[str, Any]:
        found: dict[str, Any] = self.curl("GET", f"/api/jobs/{number}").content
        return found

    def wait(self, until: Callable[[dict[str, Any]], object], number: int = 1) -> dict[str, Any]:
        """The job, once something is true of it."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            job = self.job(number)
            if until(job):
                return job
            assert job["status"] != "failed", self.log(number)
            time.sleep(LOOK_S)
        raise AssertionError(f"it never came: {self.job(number)}\n{self.log(number)}")

    def log(self, number: int = 1) -> str:
        return str(self.curl("GET", f"/api/jobs/{number}/log").content)


def read(body: bytes) -> Any:  # noqa: ANN401
    try:
        return json.loads(body)
    except ValueError:
        return body.decode()


@contextmanager
def hub_in(folder: Path, *arguments: str, port: int = 0) -> Iterator[Place]:
    """A hub that is ended at the end, and with it the servers of its jobs."""
    folder.mkdir(exist_ok=True)
    flags = ["--folder", str(folder / "hub"), "--port", str(port), *arguments]
    process = start("fedlearn", "hub", *flags, folder=folder, limit_s=2 * LIMIT_S)
    try:
        url, _ = wait_for(process, r"hub: (http://\S+)/$")
        yield Place(url, folder / "hub", process)
    finally:
        process.terminate()
        try:
            process.wait(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def devices_of(
    place: Place, *names: str, job: int | None = None, is_plain: bool = False, begin: Start = start
) -> Iterator[list[subprocess.Popen[str]]]:
    """Devices with an identity of their own each, once they are registered; plain ones use all processors."""
    only = [] if job is None else ["--job", str(job)]
    flags = ["--hub", place.url, *only, *([] if is_plain else ["--threads", "1", "--on-battery", "yes"])]
    folders = [place.folder.parent / name for name in names]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    processes = [
        begin("fedlearn", "join", *flags, "--name", folder.name, folder=folder, limit_s=2 * LIMIT_S)
        for folder in folders
    ]
    with ended_at_exit(*processes):
        for process in processes:
            wait_for(process, "registered as device")
        yield processes


class Reader:
    """Reads a stream on a thread, with the time at which each piece came."""

    def __init__(self, url: str) -> None:
        self.lines: list[tuple[float, str]] = []
        self._url = url
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with urllib.request.urlopen(self._url, timeout=LIMIT_S) as response:
            for line in response:
                self.lines.append((time.monotonic(), line.decode().rstrip("\n")))

    def end(self) -> list[str]:
        """All of it, once it has ended."""
        self._thread.join(timeout=LIMIT_S)
        assert not self._thread.is_alive()
        return [line for _, line in self.lines]

    @property
    def seconds(self) -> float:
        """Between the first line and the last."""
        return self.lines[-1][0] - self.lines[0][0]

    def events(self) -> dict[str, list[dict[str, Any]]]:
        """What was told, by the kind of event."""
        lines, found = self.end(), dict[str, list[dict[str, Any]]]()
        for name, data in pairwise(lines):
            if name.startswith("event: "):
                found.setdefault(name.removeprefix("event: "), []).append(json.loads(data.removeprefix("data: ")))
        return found
