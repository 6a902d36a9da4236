"""The state of this machine, and a limit on the memory of this process."""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import final

import psutil

from es_core import usable_processors
from fedlearn.client.lending.policy import Facts
from fedlearn.system.processes import limit_growth

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")
"""File that names the control group of a container or a systemd unit, which has its limits."""

LEAST_S = 0.5
"""Shortest interval of a measurement in seconds: processor clocks tick only a hundred times a second."""

_SLACK_BYTES = 512 * 2**20
_STACK_BYTES = 16 * 2**20
"""Bytes beyond the budget, for libraries that load when they are needed, and for the stacks of threads."""


@final
class MachineMonitor:
    """Measures facts of the machine; the load of other processes is known from the second measurement on."""

    def __init__(self) -> None:
        self._last = self._times()

    def facts(self) -> Facts:
        now, battery = time.localtime(), None
        with suppress(AttributeError, OSError):  # a system, or a container, that has no word of one
            battery = psutil.sensors_battery()
        busy_s, own_s, at = self._times()
        last_busy_s, last_own_s, last = self._last
        self._last = (busy_s, own_s, at)
        others_s = (busy_s - last_busy_s) - (own_s - last_own_s)
        processors_s = (at - last) * (os.cpu_count() or 1)
        return Facts(
            minute=60 * now.tm_hour + now.tm_min,
            is_on_battery=battery is not None and battery.power_plugged is False,
            others_share=min(max(others_s / processors_s, 0.0), 1.0) if at >= last + LEAST_S else 0.0,
        )

    def _times(self) -> tuple[float, float, float]:
        """Seconds for which all processors were busy, this process's share of them, and the time."""
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0) + getattr(times, "steal", 0.0)
        guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # is in user and nice, too
        return sum(times) - guest - idle, time.process_time(), time.monotonic()


def free_bytes() -> int:
    """Bytes of memory that are available without swapping."""
    free = int(psutil.virtual_memory().available)
    with suppress(OSError, ValueError):  # no container, or one without a limit
        free = min(free, max(_of_container("memory.max") - _of_container("memory.current"), 0))
    return free


def total_bytes() -> int:
    """Bytes of memory of this machine, or of the container."""
    total = int(psutil.virtual_memory().total)
    with suppress(OSError, ValueError):
        total = min(total, _of_container("memory.max"))
    return total


def _of_container(name: str) -> int:
    return int((CGROUPS / OWN_CGROUP.read_text().partition("0::/")[2].strip() / name).read_text())


def limit_memory(max_bytes: int, threads: int) -> None:
    """Lets the system refuse memory far beyond the budget, in case the budget missed something."""
    limit_growth(max_bytes + _SLACK_BYTES + _STACK_BYTES * (threads or usable_processors()))
