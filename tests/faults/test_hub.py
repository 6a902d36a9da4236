"""A hub, its job's server and the device that works for it, each of them killed in the middle of training."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import psutil
import pytest

from fedlearn.coordination.status import RunStatus
from fedlearn.storage.status import read_status
from tests.acceptance.hubs import Place, devices_of, hub_in
from tests.end_to_end.processes import start_anew
from tests.patience import LIMIT_S

pytest.importorskip("torch")
pytest.importorskip("starlette")

TASK = """
import numpy as np
import torch.nn.functional as F
from torch import nn
import fedlearn
x = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)
task = fedlearn.supervised(
    lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
    lambda model, rows: F.cross_entropy(model(rows["x"]), rows["y"]),
    {"x": x, "y": (x[:, 0] > 0).astype(np.int64)},
    batch_size=4,
    settings={"sigma": 0.05, "learning_rate": 0.01, "population_limit": 32, "group_size": 16, "time_per_step": 60},
)
"""
JOB = {"model_config": {"type": "task", "task": "mine.py:task"}}
FOR_EVER = {"epochs": 100_000}


def pid_of(place: Place) -> int:
    """Of the job's server, by its own word."""
    status = read_status(place.folder / "runs" / "1" / "status.json", RunStatus)
    assert status is not None
    return status.pid


def kill_device(device: "subprocess.Popen[str]") -> None:
    """Ends the device and its volunteer at once, as a machine without power does."""
    for process in (*psutil.Process(device.pid).children(recursive=True), psutil.Process(device.pid)):
        process.kill()
    device.wait()


@contextmanager
def trained_by_two(place: Place, *, seats: bool) -> Iterator[list["subprocess.Popen[str]"]]:
    """A job without end, once two devices work for it and some steps are taken."""
    (place.folder / "tasks" / "mine.py").write_text(TASK)
    assert place.curl("POST", "/api/jobs", JOB).status == 201
    with devices_of(place, "ada", "bob", job=1, begin=start_anew) as devices:
        if seats:
            assert place.curl("POST", "/api/network/initialize/1", {"split": True}).content["devices"]
        assert place.curl("POST", "/api/network/train/1", FOR_EVER).status == 200
        place.wait(
            lambda job: job["step"] > 3 and [bool(device["layers"]) for device in job["devices"]] == [True, True]
        )
        yield devices
        assert place.curl("POST", "/api/network/stop/1").status == 200


@pytest.mark.long
def test_a_job_goes_on_with_the_other_device_when_one_is_killed(tmp_path: Path) -> None:
    with hub_in(tmp_path) as place, trained_by_two(place, seats=False) as (_, bob):
        kill_device(bob)
        began, step = monotonic(), place.job()["step"]
        place.wait(lambda job: job["step"] > step + 5)
        print(f"five steps more {monotonic() - began:.1f} s after one of two devices was killed")
        held = {device["name"]: device["layers"] for device in place.job()["devices"]}
        assert held["ada"] == ["all"]


@pytest.mark.long
def test_a_device_that_is_killed_takes_its_volunteer_along(tmp_path: Path) -> None:
    with hub_in(tmp_path) as place, trained_by_two(place, seats=False) as (_, bob):
        (volunteer,) = psutil.Process(bob.pid).children()
        began = monotonic()
        bob.kill()
        bob.wait()
        psutil.wait_procs([volunteer], timeout=LIMIT_S)
        assert not volunteer.is_running()
        print(f"its volunteer ended {monotonic() - began:.1f} s after a device was killed")


@pytest.mark.long
def test_a_new_device_takes_the_part_of_one_that_was_killed(tmp_path: Path) -> None:
    with hub_in(tmp_path) as place, trained_by_two(place, seats=True) as (_, bob):
        before = {device["name"]: device["layers"] for device in place.job()["devices"]}
        kill_device(bob)
        place.wait(lambda job: job["missing"] == 1)
        step = place.job()["step"]
        began = monotonic()
        with devices_of(place, "eve", job=1):
            job = place.wait(lambda job: job["step"] > step + 5)
            print(f"five steps more {monotonic() - began:.1f} s after a new device came for one that was killed")
            held = {device["name"]: device["layers"] for device in job["devices"]}
        assert sorted([held["ada"], held["eve"]]) == sorted(before.values())
        assert "1 are missing; whoever comes" in place.log()


@pytest.mark.long
def test_killed_servers_and_hubs_cost_no_job_its_steps(tmp_path: Path) -> None:
    with hub_in(tmp_path) as first:
        (first.folder / "tasks" / "mine.py").write_text(TASK)
        port = int(first.url.rpartition(":")[2])
        assert first.curl("POST", "/api/jobs", JOB).status == 201
        with devices_of(first, "ada"):
            assert first.curl("POST", "/api/network/train/1", FOR_EVER).status == 200
            step = first.wait(lambda job: job["step"] > 3)["step"]

            os.kill(server := pid_of(first), signal.SIGKILL)
            began = monotonic()
            step = first.wait(lambda job: job["step"] > step + 3 and pid_of(first) != server)["step"]
            print(f"steps again {monotonic() - began:.1f} s after a server was killed")
            assert "restarted from its journal" in first.log()

            server = pid_of(first)
            first.process.kill()
            first.process.wait()
            with hub_in(tmp_path, port=port) as second:
                job = second.job()
                assert (job["status"], job["model_config"]) == ("training", JOB["model_config"])
                second.wait(lambda job: job["step"] > step and len(job["devices"]) == 1)
                assert pid_of(second) == server  # which never noticed
                assert second.curl("POST", "/api/network/stop/1").status == 200
                second.wait(lambda job: job["status"] == "stopped" and not psutil.pid_exists(server))
                steps = [line["step"] for line in second.curl("GET", "/api/runs").content]
                assert steps[0] > step
