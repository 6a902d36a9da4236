"""A hub and its devices as processes, and one job from its request to its end."""

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

import msgspec
import psutil

LOOK_S = 0.2
TYPING_S = 15.0
"""Seconds between a job's initialization and the request to train it, as somebody takes who types; what processes need
is imported meanwhile."""

FEDLEARN = (sys.executable, "-m", "fedlearn")


class JobDone(msgspec.Struct, frozen=True):
    """What one job reached."""

    figures: dict[str, float]
    """What was measured of the final weights on held-out data."""
    seconds: float
    """Seconds of training, by the run's clock."""
    processor_s: float
    """Processor seconds of its server and devices from the first step to the last."""
    steps: int
    to_result_s: float
    """Seconds from the request to train to the measured result."""


@final
class HubOfOwn:
    """A hub on a free port, with a folder of its own, until it is closed."""

    def __init__(self, fill: Callable[[Path], object]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._root = Path(self._folder.name)
        (self._root / "hub" / "data").mkdir(parents=True)
        fill(self._root / "hub" / "data")
        self._processes: list[subprocess.Popen[str]] = []
        hub = self._start("hub", "--folder", str(self._root / "hub"), "--port", "0")
        assert hub.stdout is not None
        self._url = next(line for line in hub.stdout if line.startswith("hub: ")).split()[1].rstrip("/")

    def train(
        self, body: Mapping[str, Any], training: Mapping[str, Any], *, n_devices: int, n_killed: int = 0
    ) -> JobDone:
        """Trains a job with so many devices, of which some are killed a third on the way."""
        number = self.ask("POST", "/api/jobs", body)["job_id"]
        devices = [self._join(number, name) for name in range(n_devices)]
        self._wait(lambda: len(self.ask("GET", f"/api/jobs/{number}")["devices"]) == n_devices)
        if n_devices:
            self.ask("POST", f"/api/network/initialize/{number}", {})
        time.sleep(TYPING_S)
        requested = time.perf_counter()
        self.ask("POST", f"/api/network/train/{number}", training)
        self._wait(lambda: self._job(number)["step"] > 0)
        processes, spent = psutil.Process().children(recursive=True), 0.0
        began = _processor_s(processes)
        while (job := self._job(number))["status"] == "training":
            spent = max(spent, _processor_s(processes) - began)
            if n_killed and job["steps"] and job["step"] * 3 > job["steps"]:
                for device in devices[:n_killed]:
                    _kill(device)
                n_killed = 0
            time.sleep(LOOK_S)
        assert job["status"] == "completed", job
        self._wait(lambda: self._job(number)["validation"])
        to_result_s = time.perf_counter() - requested
        metrics = (self._root / "hub" / "runs" / job["run"] / "metrics.jsonl").read_text().splitlines()
        seconds = float(json.loads(metrics[-1])["elapsed_s"])
        return JobDone(self._job(number)["validation"], seconds, spent, job["steps"], to_result_s)

    def ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401
        """One request to the hub."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, data=data, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read())

    def close(self) -> None:
        """Ends the hub and all devices."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(timeout=60)
            if process.stdout is not None:
                process.stdout.close()
        self._folder.cleanup()

    def _join(self, job: str, name: int) -> subprocess.Popen[str]:
        flags = ("--hub", self._url, "--job", job, "--name", f"device-{name}", "--threads", "1", "--on-battery", "yes")
        return self._start("join", *flags)

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        folder = self._root / str(len(self._processes))
        folder.mkdir()
        output = subprocess.PIPE if arguments[0] == "hub" else subprocess.DEVNULL
        process = subprocess.Popen(
            [*FEDLEARN, *arguments], cwd=folder, stdout=output, stderr=subprocess.STDOUT, text=True
        )
        self._processes.append(process)
        return process

    def _job(self, number: str) -> dict[str, Any]:
        job: dict[str, Any] = self.ask("GET", f"/api/jobs/{number}")
        assert job["status"] != "failed", job
        return job

    def _wait(self, until: Callable[[], object], limit_s: float = 300.0) -> None:
        deadline = time.monotonic() + limit_s
        while not until():
            assert time.monotonic() < deadline, "it never came"
            time.sleep(LOOK_S)


def _processor_s(processes: list[psutil.Process]) -> float:
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


def _kill(device: subprocess.Popen[str]) -> None:
    """Kills a device with its volunteer, as a power cut does."""
    for child in psutil.Process(device.pid).children(recursive=True):
        child.kill()
    device.kill()
