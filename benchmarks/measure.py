"""What the benchmarks share: the machine in words, processors, alternating rounds, medians, and printing."""

import gc
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import final

import msgspec

import es_core

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Read by the matrix libraries under numpy and PyTorch, when they are loaded and never again."""


class Machine(msgspec.Struct, frozen=True):
    """Where a figure was measured."""

    processor: str
    usable_processors: int
    instruction_set: str
    python: str


class Spread(msgspec.Struct, frozen=True):
    """The median of several measurements, and their first and third quartile."""

    median: float
    low: float
    high: float


@final
class Stopwatch:
    """Seconds that passed while it ran."""

    def __init__(self) -> None:
        self._passed_s = 0.0
        self._started: float | None = None

    def start(self) -> None:
        """Goes on from where it stands."""
        self._started = time.perf_counter()

    def stop(self) -> None:
        """Stands still until it is started again."""
        self._passed_s = self.seconds()
        self._started = None

    def seconds(self) -> float:
        """What it shows now."""
        return self._passed_s + (time.perf_counter() - self._started if self._started is not None else 0.0)


def describe_machine() -> Machine:
    """This machine, and the instruction set in use."""
    names = [
        line.partition(":")[2].strip()
        for line in (Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else [])
        if line.startswith("model name")
    ]
    processor = names[0] if names else platform.processor() or platform.machine()
    return Machine(processor, es_core.usable_processors(), es_core.current_isa(), platform.python_version())


def use_processors(count: int, **variables: str) -> None:
    """Starts the program again on its first `count` processors, with as many threads in the matrix libraries.

    Affinity also bounds the threads of everything that takes all processors it may use. 0 changes nothing; systems
    without affinity bound the matrix libraries only. `variables` are added to the environment.
    """
    if count == 0 or all(os.environ.get(name) == str(count) for name in _THREAD_VARIABLES):
        return
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])
    sys.stdout.flush()
    limits = dict.fromkeys(_THREAD_VARIABLES, str(count))
    os.execve(sys.executable, sys.orig_argv, {**os.environ, **limits, **variables})


def alternate(contestants: Mapping[str, Callable[[], object]], *, rounds: int) -> dict[str, list[float]]:
    """Seconds of each contestant in each round, after a round to warm up; every second round goes backwards.

    What disturbs the machine for a while so disturbs all of them, and ratios within a round keep their meaning.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for run in contestants.values():
        run()
    gc.disable()
    try:
        for turn in range(rounds):
            for name in list(contestants)[:: 1 if turn % 2 == 0 else -1]:
                started = time.perf_counter()
                contestants[name]()
                seconds[name].append(time.perf_counter() - started)
            gc.collect()
    finally:
        gc.enable()
    return seconds


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles of at least one value."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, _, high = quantiles(values, n=4, method="inclusive")
    return Spread(median(values), low, high)


def print_report(report: msgspec.Struct, table: Callable[[], str], *, as_json: bool) -> None:
    """The report as one JSON object, or as a table for people."""
    print(msgspec.json.encode(report).decode() if as_json else table())
