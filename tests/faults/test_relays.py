"""A relay under another, one of them killed: training goes on, and its volunteers come back through somebody else.

Volunteers are threads of a process for each relay; a trial takes its time by sleeping.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, final

import pytest

from tests.end_to_end.processes import ended_at_exit, fedlearn, metrics_of, start, wait_for
from tests.patience import LIMIT_S, until

TASK = """
import time
import fedlearn
import numpy as np

target = np.linspace(-1.0, 1.0, 300, dtype=np.float32)

def loss(arrays):
    time.sleep({trial_s})
    return float(((arrays["vector"] - target) ** 2).mean())

task = fedlearn.function(loss, {{"vector": np.zeros(300)}}, covariance=False)
"""
CROWD = """
import json
import sys
import threading
import time
from hashlib import sha256
from fedlearn.client import client
from fedlearn.coordination.effects import Reply
from fedlearn.coordination.work.worker import Worker
from fedlearn.net.address import parse_address
from fedlearn.storage.task_file import load_task
from fedlearn.wire.messages import Ready, Result
from fedlearn.wire.proof import Credentials, Identity

name, count, *addresses = sys.argv[1:]
log, computed = open(f"{name}.log", "w", buffering=1), Worker.computed

def watched(self, result, now):
    effects = computed(self, result, now)
    for effect in effects:
        if isinstance(effect, Reply) and isinstance(effect.message, Ready | Result):
            line = {"time": time.time(), "name": self._name, "what": type(effect.message).__name__}
            log.write(json.dumps(line | {"step": effect.message.step}) + "\\n")
    return effects

def volunteer(name):
    first, *others = map(parse_address, addresses)
    identity = Identity.of_seed(sha256(name.encode()).digest())
    client.join(first, Credentials(identity), name=name, threads=1, once=False, task=task, others=others)

task = load_task("task.py:task")
Worker.computed = watched
client.computes = lambda: False  # it would see the others' computations
crowd = [threading.Thread(target=volunteer, args=(f"{name} {number}",)) for number in range(int(count))]
for thread in crowd:
    thread.start()
for thread in crowd:
    thread.join()
print("all have left", flush=True)
"""
FLAGS = ["--task", "task.py:task", "--group-size", "8", "--sigma", "0.05", "--learning-rate", "0.01", "--threads", "1"]
FLAGS += ["--port", "0", "--time-per-step", "5", "--sample-time", "0", "--volunteers", "0"]


@final
class Tree:
    """A server, a relay, a relay under it, and volunteers under each of the two."""

    def __init__(self, folder: Path, held: ExitStack, *, steps: int, crowd: int, settings: list[str]) -> None:
        self.folder, self.crowd = folder, crowd
        self._held = held
        flags = [*FLAGS, *settings, "--steps", str(steps)]
        self.server = self._started("server.py", *flags)
        address = self._address_of(self.server)
        self.upper = self._relay("upper", address)
        upper = self._address_of(self.upper)
        self.lower = self._relay("lower", upper, address)
        lower = self._address_of(self.lower)
        self.under_upper = self._started(str(folder / "crowd.py"), "under upper", str(crowd), upper, address)
        self.under_lower = self._started(str(folder / "crowd.py"), "under lower", str(crowd), lower, upper, address)

    def results(self, name: str) -> dict[str, list[dict[str, Any]]]:
        """What each volunteer of a crowd said, in order."""
        path = self.folder / f"{name}.log"
        lines = path.read_text().splitlines() if path.exists() else []
        said: dict[str, list[dict[str, Any]]] = {}
        for line in [json.loads(line) for line in lines if line.endswith("}")]:
            said.setdefault(line["name"], []).append(line)
        return said

    def until_all_count(self, name: str, since: float = 0.0) -> list[float]:
        """Seconds until each of a crowd has sent a Result that follows a Ready of after that time."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            found = [_counts_at(said, since) for said in self.results(name).values()]
            if len(known := [at for at in found if at is not None]) == self.crowd:
                return sorted(at - since for at in known)
            time.sleep(0.02)
        last = {name: said[-1] for name, said in self.results(name).items()}
        raise AssertionError(f"expected that all {self.crowd} {name} count: {last}")

    def until_step(self, step: int) -> None:
        """Until so many steps are taken."""
        until(lambda: len(metrics_of(self.folder)) >= step, f"step {step} was never taken")

    def longest_pause_s(self) -> float:
        """Between the ends of two steps."""
        times = [float(metrics["time"]) for metrics in metrics_of(self.folder)]
        return max(after - before for before, after in pairwise(times))

    def _relay(self, name: str, *above: str) -> "subprocess.Popen[str]":
        flags = ["--task", "task.py:task", "--port", "0", "--name", name, "--threads", "1"]
        config = str(self.folder / f"config of {name}")
        return self._started(str(self.folder / "verb.py"), "relay", "--server", *above, *flags, config=config)

    def _started(self, script: str, *arguments: str, config: str = "") -> "subprocess.Popen[str]":
        environ: dict[str, Any] = {"XDG_CONFIG_HOME": config} if config else {}
        process = start(script, *arguments, folder=self.folder, **environ)
        self._held.enter_context(ended_at_exit(process))
        return process

    def _address_of(self, process: "subprocess.Popen[str]") -> str:
        line, _ = wait_for(process, r"join with: .* join --task \S+ (\S+)")
        return line


def _counts_at(said: list[dict[str, Any]], since: float) -> float | None:
    is_ready = False
    for line in said:
        is_ready |= line["what"] == "Ready" and line["time"] > since
        if is_ready and line["what"] == "Result":
            return float(line["time"])
    return None


@contextmanager
def tree(folder: Path, *, steps: int, crowd: int, trial_s: float, settings: list[str]) -> Iterator[Tree]:
    (folder / "task.py").write_text(TASK.format(trial_s=trial_s))
    (folder / "crowd.py").write_text(CROWD)
    (folder / "verb.py").write_text("from fedlearn.commands.command_line import main\n\nmain()\n")
    with ExitStack() as held:
        yield Tree(folder, held, steps=steps, crowd=crowd, settings=settings)


def check_killed(folder: Path, *, steps: int, crowd: int, trial_s: float, settings: list[str]) -> None:
    """Kills the lower relay, and once its volunteers are back the upper one."""
    with tree(folder, steps=steps, crowd=crowd, trial_s=trial_s, settings=settings) as scene:
        for name in ("under upper", "under lower"):
            scene.until_all_count(name)
        scene.until_step(5)
        for relay, names in ((scene.lower, ["under lower"]), (scene.upper, ["under lower", "under upper"])):
            at, n_steps = time.time(), len(metrics_of(folder))
            relay.kill()
            seconds = [second for name in names for second in scene.until_all_count(name, at)]
            print(f"killed at step {n_steps}: {names} count again after {min(seconds):.1f} to {max(seconds):.1f} s")
        assert len(metrics_of(folder)) < steps, "the run ended before they came back"
        wait_for(scene.server, f"all {steps} steps are done")
        digest = metrics_of(folder)[-1]["digest"]
        for crowd_process in (scene.under_upper, scene.under_lower):
            _, said = wait_for(crowd_process, "all have left")
            assert said.count(f"to step {steps} with digest {digest}") == crowd, said
        print(f"the longest step took {scene.longest_pause_s():.2f} s")
    assert f"digest {digest}" in (replayed := fedlearn("replay", "1", folder=folder))
    assert "equal to" in replayed


@pytest.mark.slow
def test_volunteers_of_killed_relays_come_back_through_another_and_directly(tmp_path: Path) -> None:
    settings = ["--population-limit", "64", "--exchange", "sum"]
    check_killed(tmp_path, steps=150, crowd=2, trial_s=0.002, settings=settings)


@pytest.mark.long
def test_twenty_volunteers_of_killed_relays_come_back(tmp_path: Path) -> None:
    settings = ["--population-limit", "640", "--exchange", "sum"]
    check_killed(tmp_path, steps=150, crowd=20, trial_s=0.002, settings=settings)
