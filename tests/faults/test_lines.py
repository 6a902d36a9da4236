"""Volunteers on bad lines: late, slow, lossy, or cut for a while.

The lines are in user space: 50 ms each way, 1 Mbit/s, and a fiftieth of the packets comes a retransmission later.
A trial takes its time by sleeping, so that what is measured is the line and not the processors of this machine.
"""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from fedlearn.net.address import parse_address
from tests.end_to_end.processes import ended_at_exit, metrics_of, start
from tests.faults.callers import serving
from tests.faults.link import Link, link_to
from tests.faults.measures import until_volunteers
from tests.patience import LIMIT_S, until

BAD = {"delay_s": 0.05, "bytes_per_s": 125_000.0, "loss": 0.02}
WATCHED = """
import json
import sys
import time
from fedlearn.commands.command_line import main
from fedlearn.coordination.effects import Evaluate, Reply
from fedlearn.coordination.work.worker import Worker
from fedlearn.wire.messages import Ready, Result

log, computed = open(sys.argv[1], "w", buffering=1), Worker.computed

def watched(self, result, now):
    compute, started = self._under_way
    effects = computed(self, result, now)
    said = [effect.message for effect in effects if isinstance(effect, Reply)]
    line = {"time": time.time(), "what": type(compute).__name__, "s": now - started}
    line["ready"] = next((message.step for message in said if isinstance(message, Ready)), None)
    line["step"] = next((message.step for message in said if isinstance(message, Result)), None)
    log.write(json.dumps(line) + "\\n")
    return effects

Worker.computed = watched
sys.exit(main(["join", *sys.argv[2:]]))
"""
FLAGS = ["--learning-rate", "0.01", "--time-per-step", "10", "--tls", "off", "--audit", "0", "--volunteers", "0"]


@contextmanager
def watching(
    folder: Path, *flags: str, trial_s: float = 0.001, n_parameters: int = 20, limit_s: float = LIMIT_S
) -> Iterator[int]:
    """The port of a server whose volunteers write down what they do."""
    (folder / "watched.py").write_text(WATCHED)
    with serving(folder, *FLAGS, *flags, trial_s=trial_s, n_parameters=n_parameters, limit_s=limit_s) as (
        _,
        line,
    ):
        yield parse_address(line).port


def joining(folder: Path, name: str, port: int, *, limit_s: float = LIMIT_S) -> Popen[str]:
    """A volunteer that writes down what it does."""
    arguments = [f"{name}.log", "--task", "fit.py:task", "--threads", "1", "--server", f"127.0.0.1:{port}"]
    config = str(folder / f"config of {name}")
    return start(str(folder / "watched.py"), *arguments, folder=folder, limit_s=limit_s, XDG_CONFIG_HOME=config)


def log_of(folder: Path, name: str) -> list[dict[str, Any]]:
    path = folder / f"{name}.log"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def evaluated(folder: Path, name: str, since: float, until: float) -> float:
    """Share of a time in which a volunteer evaluated what it could send before it heard that the step was over."""
    lines = [line for line in log_of(folder, name) if line["step"] is not None and since < line["time"] <= until]
    return float(sum(line["s"] for line in lines)) / (until - since)


def steps_between(folder: Path, since: float, until: float) -> list[dict[str, Any]]:
    return [line for line in metrics_of(folder) if since < line["time"] <= until]


def steps_after(folder: Path, since: float, n_steps: int) -> list[dict[str, Any]]:
    """The next so many steps, however long they take."""
    until(lambda: len(steps_between(folder, since, time.time())) >= n_steps, f"{n_steps} steps never came")
    return steps_between(folder, since, time.time())


def until_evaluating(folder: Path, names: list[str], since: float, *, limit_s: float = LIMIT_S) -> None:
    """Until each of them sent a Result."""

    def has_evaluated(name: str) -> bool:
        return any(line["step"] and line["time"] > since for line in log_of(folder, name))

    until(lambda: all(map(has_evaluated, names)), "they do not evaluate", limit_s=limit_s)


def measured(seconds: float) -> tuple[float, float]:
    began = time.time()
    time.sleep(seconds)
    return began, time.time()


@pytest.mark.slow
def test_whoever_is_on_a_bad_line_evaluates_where_all_are(tmp_path: Path) -> None:
    names = ["Ada", "Bob", "Eve"]
    flags = ["--population-limit", "64", "--max-population", "16384"]
    with watching(tmp_path, *flags) as port, ExitStack() as held:
        for name in names:
            link = held.enter_context(link_to(port, **BAD))
            held.enter_context(ended_at_exit(joining(tmp_path, name, link.port)))
        until_volunteers(tmp_path, 3)
        time.sleep(3.5)  # for the population to grow
        steps = steps_after(tmp_path, time.time(), 4)
    span = steps[0]["time"], steps[-1]["time"]
    shares = [evaluated(tmp_path, name, *span) for name in names]
    members = sum(line["members"] for line in steps) / len(steps)
    print(f"all on bad lines: {[f'{share:.0%}' for share in shares]} of the time, {members:.0f} members a step")
    step_s = (span[1] - span[0]) / (len(steps) - 1)
    print(f"steps of {step_s:.2f} s; volunteers in each: {[line['volunteers'] for line in steps]}")
    assert min(shares) > 0.0


@pytest.mark.parametrize(
    ("population", "seconds"), [(64, 2.0), pytest.param(2048, 10.0, marks=pytest.mark.long)], ids=["short", "long"]
)
def test_whoever_is_on_a_bad_line_alone_costs_the_others_nothing(
    tmp_path: Path, population: int, seconds: float
) -> None:
    """In steps that are shorter than its exchange it gets nothing done, and nobody waits for it."""
    with watching(tmp_path, "--population-limit", str(population)) as port, ExitStack() as held:
        for name in ("Ada", "Bob"):
            held.enter_context(ended_at_exit(joining(tmp_path, name, port)))
        until_volunteers(tmp_path, 2)
        time.sleep(seconds / 4)
        before = measured(seconds)
        link = held.enter_context(link_to(port, **BAD))
        held.enter_context(ended_at_exit(joining(tmp_path, "Eve", link.port)))
        until_evaluating(tmp_path, ["Eve"], before[1])
        time.sleep(seconds / 4)
        during = measured(seconds)
    alone = evaluated(tmp_path, "Eve", *during)
    others = [sum(evaluated(tmp_path, name, *span) for name in ("Ada", "Bob")) / 2 for span in (before, during)]
    counts = [line["volunteers"] for line in steps_between(tmp_path, *during)]
    print(f"population {population}: alone on a bad line {alone:.0%} of its time, counts in {counts.count(3)} of")
    print(f"{len(counts)} steps; the others {others[1]:.0%} of theirs, {others[0]:.0%} before")
    assert seconds < 10.0 or (alone > 0.6 and others[1] > 0.8 * others[0])


def parted(folder: Path, n_each: int, cut_s: float) -> list[int]:
    """Half of the volunteers are cut off for a while; how many steps each takes to count again, once it is ready.

    They try again at intervals that grow with the time in which nobody answered, so that coming back takes as long.
    """
    limit_s = LIMIT_S + 3.0 * cut_s
    near = [f"near {number}" for number in range(n_each)]
    far = [f"far {number}" for number in range(n_each)]
    with (
        watching(folder, "--population-limit", "256", n_parameters=20_000, limit_s=limit_s) as port,
        link_to(port) as link,
        ExitStack() as held,
    ):
        for name in near:
            held.enter_context(ended_at_exit(joining(folder, name, port, limit_s=limit_s)))
        for name in far:
            held.enter_context(ended_at_exit(joining(folder, name, link.port, limit_s=limit_s)))
        until_volunteers(folder, 2 * n_each)
        cut_at = time.time()
        link.cut()
        time.sleep(cut_s)
        until(lambda: len(steps_between(folder, cut_at, time.time())) > 2, "no steps without them", limit_s=limit_s)
        mended_at = mend(link)
        until_evaluating(folder, far, mended_at, limit_s=limit_s)
    steps = []
    for name in far:
        after = [line for line in log_of(folder, name) if line["time"] > mended_at]
        ready = next(line for line in after if line["ready"] is not None)
        first = next(line for line in after if line["step"] is not None)
        n_missed = len(steps_between(folder, cut_at, ready["time"]))
        n_steps = len(steps_between(folder, ready["time"], first["time"]))
        print(f"{name}: {n_missed} steps were taken without it; Ready {ready['time'] - mended_at:.1f} s after the line")
        print(f"was mended, at step {ready['ready']}; {n_steps} steps more until it counted, from {first['step']} on")
        steps.append(n_steps)
        assert "Load" not in [line["what"] for line in after]
        assert "Apply" in [line["what"] for line in after]
    return steps


def mend(link: Link) -> float:
    link.mend()
    return time.time()


def test_half_that_was_cut_off_is_back_by_catching_up(tmp_path: Path) -> None:
    parted(tmp_path, 2, 2.0)


@pytest.mark.long
def test_half_that_was_cut_off_for_a_minute_counts_again_within_two_steps(tmp_path: Path) -> None:
    assert max(parted(tmp_path, 2, 60.0)) <= 2
