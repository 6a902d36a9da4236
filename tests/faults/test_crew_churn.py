"""Seats of crews that come, go, die and stand still by lot, with whole volunteers beside, for as long as one wants.

They send to each other where they reach each other. In the end the server is killed, and they go on with the next.

FEDLEARN_CHURN_S=600 FEDLEARN_CHURN_SEED=1 python -m pytest -m long -s tests/faults/test_crew_churn.py
"""

import json
import os
import random
import signal
import time
from functools import partial
from pathlib import Path
from typing import final

import pytest

from tests.acceptance.crews import write_task
from tests.end_to_end.processes import ended_at_exit, fedlearn, free_port, metrics_of, start, wait_for
from tests.faults.hatchery import Hatchery, hatching
from tests.faults.history import check_history, drained
from tests.faults.measures import growth_mb_an_hour, memory_mb, until_more
from tests.patience import LIMIT_S

pytest.importorskip("torch")

LEAST, MOST = 3, 5
"""Seats at a time; beside them there is one whole volunteer at most."""

PART = ("--max-memory", "500kB", "--direct", "127.0.0.1:0")
"""Less than a replica takes, and more than half of it."""

STILL_S = 2.0
EVENT_S = 1.0
WARM_UP = 1 / 3
"""Of the time, before memory is measured."""

SERVE = ("--task", "task.py:task", "--volunteers", "0", "--tls", "off", "--joins-per-minute", "0", "--direct", "true")
FLAGS = (
    *("--population-limit", "64", "--group-size", "16", "--time-per-step", "2"),
    *("--checkpoint-time", "5", "--keep-journal", "8MB", "--sample-time", "0"),
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


def churned(folder: Path, duration_s: float, seed: int) -> list[tuple[float, float]]:
    """Lets things happen for so long, then crews alone go on, also with another server; gives the first one's memory as
    (s, MB)."""
    write_task(folder)
    said: list[str] = []
    samples: list[tuple[float, float]] = []
    serve = partial(start, "server.py", *SERVE, "--port", str(free_port()), folder=folder, limit_s=duration_s + 120.0)
    with hatching(folder) as hatchery:
        server = serve(*FLAGS)
        with ended_at_exit(server):
            address, _ = wait_for(server, r"join with: .* join (\S+)")
            reading = drained(server, said)
            churn = Churn(hatchery, address, random.Random(seed))
            churn.join()  # which waits for all that children need
            began = time.monotonic()
            while (elapsed_s := time.monotonic() - began) < duration_s:
                churn.happen()
                assert server.poll() is None, "".join(said)
                if elapsed_s > WARM_UP * duration_s:
                    samples.append((elapsed_s, memory_mb(server.pid)))
                time.sleep(EVENT_S)
            churn.calm()
            until_more(folder, 3)
            server.kill()
            reading.join()
        server = serve("--resume", "1")
        with ended_at_exit(server):
            reading = drained(server, said)
            until_more(folder, 3)
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=LIMIT_S) == 0
            reading.join()
    n_steps, relayed = len(metrics_of(folder)), sum(bool(step.get("relayed")) for step in metrics_of(folder))
    traffic = json.loads(fedlearn("traffic", "1", "--json", folder=folder))
    print(f"seed {seed}, {duration_s:.0f} s: {n_steps} steps, {relayed} with crews; {churn.counts}")
    print(f"{traffic['direct']} bytes straight from seat to seat")
    assert relayed > 0
    assert traffic["direct"] > 0
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
