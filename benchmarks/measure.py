"""What the benchmarks share: the machine in words, processors, alternating rounds, medians, and printing."""

import argparse
import gc
import os
import platform
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import TypeVar, final

import msgspec

import es_core

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Read by the matrix libraries under numpy and PyTorch, when they are loaded and never again."""

SETTINGS: dict[str, int | float] = {
    "hidden_size": 64,
    "group_size": 64,
    "population_limit": 12288,
    "sigma": 0.01,
    "learning_rate": 0.006,
    "time_per_step": 5.0,
}
"""Settings where no flag says otherwise: a run would choose these by the speed of the machine."""

TURN_S = 0.05
"""A turn this long is thousands of times what the caches take to fill."""

_Name = TypeVar("_Name", bound=Hashable)


class Machine(msgspec.Struct, frozen=True):
    """The machine on which a figure was measured."""

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
    """Seconds that passed while it ran, by a clock."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._passed_s = 0.0
        self._started: float | None = None

    def start(self) -> None:
        """Goes on from where it stands."""
        self._started = self._clock()

    def stop(self) -> None:
        """Stands still until it is started again."""
        self._passed_s = self.seconds()
        self._started = None

    def seconds(self) -> float:
        """What it shows now."""
        return self._passed_s + (self._clock() - self._started if self._started is not None else 0.0)


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


def alternate(
    contestants: Mapping[_Name, Callable[[], object]],
    *,
    rounds: int,
    turn_s: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[_Name, list[float]]:
    """Seconds a call of each contestant in each round, after a round to warm up; every second round goes backwards.

    What disturbs the machine for a while so disturbs all of them, and ratios within a round keep their meaning. A turn
    is as many calls as fill `turn_s`, one at least: short calls then mostly find their own data in the caches, and not
    that of the contestant before. With `time.process_time` as the clock, other programs' turns on the processor do not
    count; it adds up all threads.
    """
    seconds: dict[_Name, list[float]] = {name: [] for name in contestants}
    calls = {name: _calls_within(turn_s, run) for name, run in contestants.items()}
    gc.disable()
    try:
        for turn in range(rounds):
            for name in list(contestants)[:: 1 if turn % 2 == 0 else -1]:
                started = clock()
                for _ in range(calls[name]):
                    contestants[name]()
                seconds[name].append((clock() - started) / calls[name])
            gc.collect()
    finally:
        gc.enable()
    return seconds


def _calls_within(duration_s: float, run: Callable[[], object]) -> int:
    """How many calls fill the duration, by the second of two."""
    run()
    started = time.perf_counter()
    run()
    return max(1, round(duration_s / (time.perf_counter() - started)))


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Spread:
    """The ratio of two figures, round by round."""
    return spread([numerator / denominator for numerator, denominator in zip(numerators, denominators, strict=True)])


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles of at least one value."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, _, high = quantiles(values, n=4, method="inclusive")
    return Spread(median(values), low, high)


def parser_of(docstring: str | None) -> argparse.ArgumentParser:
    """A parser that describes its program by the first line of a docstring, and knows `--json`."""
    parser = argparse.ArgumentParser(description=(docstring or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def print_tables(
    benchmark: str,
    *,
    as_json: bool,
    facts: Mapping[str, object] | None = None,
    **tables: Sequence[msgspec.Struct],
) -> None:
    """Prints what a benchmark found: one JSON object, or a table for people with a column for each field of the rows.

    `facts` hold for all rows: the settings of the measurement, and versions of libraries.
    """
    machine = describe_machine()
    if as_json:
        report = {"benchmark": benchmark, "machine": machine, **(facts or {}), **tables}
        print(msgspec.json.encode(report).decode())
        return
    said = [f"{name} {_cell(value)}" for name, value in (facts or {}).items()]
    print("; ".join([machine.processor, machine.instruction_set, *said]))
    for rows in tables.values():
        if rows:
            print(table_of(rows))


def table_of(rows: Sequence[msgspec.Struct]) -> str:
    """The rows as lines of aligned columns under the names of their fields."""
    lines = [[name.replace("_", " ") for name in rows[0].__struct_fields__]]
    lines += [[_cell(value) for value in msgspec.structs.astuple(row)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case Spread(median, low, high):
            return f"{median:.4g} [{low:.4g}, {high:.4g}]"
        case float():
            return f"{value:.4g}"
        case tuple() | list():
            return " ".join(map(_cell, value))
        case _:
            return str(value)
