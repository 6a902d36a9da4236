"""Seats of crews that come, go, die and stand still by lot, with whole volunteers beside, for as long as one wants.

FEDLEARN_CHURN_S=600 FEDLEARN_CHURN_SEED=1 python -m pytest -m long -s tests/faults/test_crew_churn.py
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import final

import pytest

from tests.acceptance.crews import write_task
from tests.end_to_end.processes import ended_at_exit, metrics_of, start, wait_for
from tests.faults.hatchery import Hatchery, hatching
from tests.faults.history import check_history, drained
from tests.faults.measures import growth_mb_an_hour, memory_mb, until_more
from tests.patience import LIMIT_S

pytest.importorskip("torch")

LEAST, MOST = 3, 5
"""Seats at a time; beside them there is one whole volunteer at most."""

PART = ("--max-memory", "500kB")
"""Less than a replica takes, and more than half of it."""

STILL_S = 2.0
EVENT_S = 1.0
WARM_UP = 1 / 3
"""Of the time, before memory is measured."""

FLAGS = (
    *("--volunteers", "0", "--population-limit", "64", "--group-size", "16", "--time-per-step", "2", "--tls", "off"),
    *("--joins-per-minute", "0", "--checkpoint-time", "5", "--keep-journal", "8MB", "--sample-time", "0"),
)


@final
class Churn:
    """Who is there, and what happens next by lot."""

    def __init__(self, hatchery: Hatchery, address: str, choices: random.Random) -> None:
        self.counts: dict[str, int] = {}
        self._hatchery, self._address, self._choices = hatchery, address, choices
        self._seats: dict[str, int] = {}
        self._whole: dict[str, int] = {}
        self._still: dict[int, float] = {}
        self._n_names = 0

    def happen(self) -> None:
        """One thing, at random; and who has stood still for long enough goes on."""
        for process in [process for process, until in self._still.items() if until <= time.monotonic()]:
            self._go_on(process)
        if len(self._seats) < LEAST:
            return self.join()
        things = [self.join, self.join, self.leave, self.kill, self.stand_still, self.join_whole, self.leave_whole]
        return self._choices.choice(things)()

    def join(self) -> None:
        if len(self._seats) < MOST:
            self._hatch(self._seats, "seat", *PART)

    def join_whole(self) -> None:
        if not self._whole:
            self._hatch(self._whole, "whole")

    def leave(self) -> None:
        self._end(self._seats, signal.SIGTERM)

    def kill(self) -> None:
        self._end(self._seats, signal.SIGKILL)

    def leave_whole(self) -> None:
        if self._whole:
            self._end(self._whole, self._choices.choice([signal.SIGTERM, signal.SIGKILL]))

    def stand_still(self) -> None:
        process = self._choices.choice(sorted(self._seats.values()))
        self._count("stood still")
        self._hatchery.send(process, signal.SIGSTOP)
        self._still[process] = time.monotonic() + self._choices.uniform(0.1, STILL_S)

    def calm(self) -> None:
        """Only seats stay, which all go on."""
        for process in list(self._still):
            self._go_on(process)
        self.leave_whole()
        while len(self._seats) < LEAST:
            self.join()

    def _hatch(self, among: dict[str, int], kind: str, *flags: str) -> None:
        self._count(f"{kind} joined")
        self._n_names += 1
        name = f"{kind} {self._n_names}"
        among[name] = self._hatchery.hatch(name, self._address, "--task", "", *flags)

    def _end(self, among: dict[str, int], number: signal.Signals) -> None:
        process = among.pop(self._choices.choice(sorted(among)))
        self._count(number.name)
        self._still.pop(process, None)
        self._hatchery.send(process, number)
        self._hatchery.send(process, signal.SIGCONT)

    def _go_on(self, process: int) -> None:
        del self._still[process]
        self._hatchery.send(process, signal.SIGCONT)

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


@contextmanager
def churning(folder: Path, address: str, seed: int) -> Iterator[Churn]:
    with hatching(folder) as hatchery:
        yield Churn(hatchery, address, random.Random(seed))


def churned(folder: Path, duration_s: float, seed: int) -> list[tuple[float, float]]:
    """Lets things happen for so long, then crews alone go on; gives the server's memory as (s, MB)."""
    write_task(folder)
    said: list[str] = []
    samples: list[tuple[float, float]] = []
    limit_s = int(duration_s) + 120
    server = start("server.py", "--task", "task.py:task", "--port", "0", *FLAGS, folder=folder, limit_s=limit_s)
    with ended_at_exit(server):
        address, _ = wait_for(server, r"join with: .* join (\S+)")
        reading = drained(server, said)
        with churning(folder, address, seed) as churn:
            churn.join()  # which waits for all that children need
            began = time.monotonic()
            while (elapsed_s := time.monotonic() - began) < duration_s:
                churn.happen()
                if elapsed_s > WARM_UP * duration_s:
                    samples.append((elapsed_s, memory_mb(server.pid)))
                time.sleep(EVENT_S)
            churn.calm()
            until_more(folder, 3)
            calm_s = time.monotonic() - began - elapsed_s
            assert server.poll() is None, "".join(said)
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=LIMIT_S) == 0
            reading.join()
    n_steps, relayed = len(metrics_of(folder)), sum(bool(step.get("relayed")) for step in metrics_of(folder))
    print(f"seed {seed}, {duration_s:.0f} s: {n_steps} steps, {relayed} with crews, and 3 more after {calm_s:.1f} s")
    print(churn.counts)
    assert relayed > 0
    check_history(folder, said)
    return samples


def test_crews_go_on_while_seats_come_and_go(tmp_path: Path) -> None:
    churned(tmp_path, 10.0, random.randrange(2**32))


@pytest.mark.long
def test_memory_does_not_grow_while_seats_come_and_go(tmp_path: Path) -> None:
    duration_s = float(os.environ.get("FEDLEARN_CHURN_S", "600"))
    seed = int(os.environ.get("FEDLEARN_CHURN_SEED", str(random.randrange(2**32))))
    samples = churned(tmp_path, duration_s, seed)
    growth = growth_mb_an_hour(samples)
    print(f"memory {samples[0][1]:.1f} to {samples[-1][1]:.1f} MB: {growth:+.2f} MB an hour")
    assert growth < 60.0
