"""What a server process does and takes, seen from outside: its metrics and what its system says of it."""

import re
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np

from tests.end_to_end.processes import metrics_of
from tests.patience import until


def until_step(folder: Path, step: int) -> None:
    """Until so many steps are written."""
    until(lambda: len(metrics_of(folder)) > step, f"expected step {step}")


def until_more(folder: Path, n_steps: int) -> None:
    """Until so many more steps are written."""
    until_step(folder, len(metrics_of(folder)) + n_steps)


def until_volunteers(folder: Path, n_volunteers: int) -> None:
    """Until so many of them had a part in one step; on a busy machine that may be long ago when it is seen."""
    until(lambda: any(line["volunteers"] >= n_volunteers for line in metrics_of(folder)), "they never came")


def longest_pause_s(folder: Path, since: float) -> float:
    """The longest time without a step."""
    times = [since, *(step["time"] for step in metrics_of(folder) if step["time"] > since), time.time()]
    return float(max(after - before for before, after in pairwise(times)))


def growth_mb_an_hour(samples: list[tuple[float, float]]) -> float:
    """Slope of a straight line through (s, MB)."""
    times, sizes = np.array(samples).T
    return float(3600.0 * np.polyfit(times, sizes, 1)[0])


def memory_mb(pid: int) -> float:
    return _status(pid, "VmRSS")


def peak_memory_mb(pid: int) -> float:
    return _status(pid, "VmHWM")


def n_sockets(pid: int) -> int:
    """Open connections, the listening one among them."""
    count = 0
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            count += "socket" in str(file.readlink())
    return count


def _status(pid: int, name: str) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"{name}:\s+(\d+) kB", text)
    assert found is not None
    return int(found.group(1)) / 1024
