"""The machine as psutil and the system show it; what a process does to itself is done in another one."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from fedlearn.client.lending import machine
from fedlearn.client.lending.machine import MachineMonitor, free_bytes, total_bytes


class Times(tuple[float, ...]):
    """Seconds by name, which add up."""

    def __new__(cls, seconds: dict[str, float]) -> "Times":
        return super().__new__(cls, seconds.values())

    def __init__(self, seconds: dict[str, float]) -> None:
        self.__dict__.update(seconds)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the machine shows: four processors of which nothing is used."""
    shown = SimpleNamespace(now=0.0, own=0.0, cpu={"user": 0.0, "idle": 0.0, "iowait": 0.0}, battery=None)
    monkeypatch.setattr(time, "monotonic", lambda: shown.now)
    monkeypatch.setattr(time, "process_time", lambda: shown.own)
    monkeypatch.setattr(psutil, "cpu_times", lambda: Times(dict(shown.cpu)))
    monkeypatch.setattr(psutil, "sensors_battery", lambda: shown.battery, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    return shown


def test_others_are_all_that_is_busy_but_ourselves(clocks: SimpleNamespace) -> None:
    watch = MachineMonitor()
    clocks.now, clocks.own = 10.0, 12.0
    clocks.cpu = {"user": 20.0, "idle": 15.0, "iowait": 5.0}
    assert watch.facts().others_share == pytest.approx(8.0 / 40.0)
    clocks.now, clocks.cpu = 20.0, {"user": 60.0, "idle": 15.0, "iowait": 5.0}
    assert watch.facts().others_share == 1.0
    clocks.now, clocks.own = 30.0, 20.0
    assert watch.facts().others_share == 0.0


def test_guests_are_not_counted_twice_nor_what_the_host_took(clocks: SimpleNamespace) -> None:
    clocks.cpu = {"user": 0.0, "idle": 0.0, "guest": 0.0, "guest_nice": 0.0, "steal": 0.0}
    watch = MachineMonitor()
    clocks.now, clocks.cpu = 1.0, {"user": 2.0, "idle": 1.0, "guest": 1.0, "guest_nice": 1.0, "steal": 1.0}
    assert watch.facts().others_share == 0.5


def test_moment_tells_nothing_of_others(clocks: SimpleNamespace) -> None:
    watch = MachineMonitor()
    clocks.now, clocks.cpu = 0.1, {"user": 0.4, "idle": 0.0, "iowait": 0.0}
    assert watch.facts().others_share == 0.0


@pytest.mark.parametrize(
    ("battery", "expected"),
    [
        (None, False),
        (SimpleNamespace(power_plugged=True), False),
        (SimpleNamespace(power_plugged=None), False),
        (SimpleNamespace(power_plugged=False), True),
    ],
)
def test_machine_is_on_mains_unless_it_says_otherwise(clocks: SimpleNamespace, battery: object, expected: bool) -> None:
    clocks.battery = battery
    assert MachineMonitor().facts().is_on_battery is expected


def test_container_that_has_no_word_of_a_battery_is_on_mains(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise FileNotFoundError("/sys/class/power_supply")

    monkeypatch.setattr(psutil, "sensors_battery", missing, raising=False)
    assert not MachineMonitor().facts().is_on_battery
    monkeypatch.delattr(psutil, "sensors_battery")
    assert not MachineMonitor().facts().is_on_battery


def test_minute_is_of_the_local_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "localtime", lambda: SimpleNamespace(tm_hour=23, tm_min=7))
    assert MachineMonitor().facts().minute == 23 * 60 + 7


def test_memory_is_what_the_container_has_and_leaves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=10_000, total=20_000))
    own = tmp_path / "user.slice" / "mine.service"
    own.mkdir(parents=True)
    (tmp_path / "cgroup").write_text("1:name=systemd:/x\n0::/user.slice/mine.service\n")
    monkeypatch.setattr(machine, "CGROUPS", tmp_path)
    monkeypatch.setattr(machine, "OWN_CGROUP", tmp_path / "cgroup")
    assert free_bytes() == 10_000
    (own / "memory.max").write_text("max\n")
    (own / "memory.current").write_text("500\n")
    assert free_bytes() == 10_000
    assert total_bytes() == 20_000
    (own / "memory.max").write_text("2000\n")
    assert (free_bytes(), total_bytes()) == (1500, 2000)
    (own / "memory.max").write_text("400\n")
    assert free_bytes() == 0


def test_process_is_made_small() -> None:
    program = """
import os, resource, numpy
from fedlearn.client.lending.machine import limit_memory
from fedlearn.system.processes import give_way, keep_memory
give_way(); keep_memory(); limit_memory(100 * 2**20, 1)
assert os.getpriority(os.PRIO_PROCESS, 0) == 19
numpy.ones(40 * 2**20)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "MemoryError" not in found.stderr
    found = subprocess.run(
        [sys.executable, "-c", program + "numpy.ones(200 * 2**20)"], capture_output=True, text=True, check=False
    )
    assert "Unable to allocate 1.56 GiB" in found.stderr
