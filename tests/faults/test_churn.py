"""Volunteers that come and go as they like, also beside others that are no help, for as long as one wants.

FEDLEARN_CHURN_S=1800 FEDLEARN_CHURN_SEED=1 python -m pytest -m long -s tests/faults/test_churn.py
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import final

import pytest

from fedlearn.net.address import parse_address
from tests.end_to_end.processes import metrics_of
from tests.faults.callers import serving
from tests.faults.hatchery import Hatchery, hatching
from tests.faults.history import check_history, drained
from tests.faults.link import Link, link_to
from tests.faults.measures import growth_mb_an_hour, memory_mb, until_more
from tests.faults.nuisances import nuisances
from tests.patience import LIMIT_S

N_NAMES = 16
LEAST, MOST = 3, 12
"""Volunteers at a time."""

CUT_S = 2.0
WARM_UP = 1 / 2
"""Of the time, before memory is measured."""

MOST_GROWTH_MB = 10.0

FLAGS = ["--volunteers", "0", "--population-limit", "320", "--joins-per-minute", "0"]
FLAGS += ["--checkpoint-time", "20", "--keep-journal", "8MB", "--learning-rate", "0.001", "--tls", "off"]


@final
class Churn:
    """Who is there, half of them on a line that can be cut, and what happens next by lot."""

    def __init__(self, hatchery: Hatchery, address: str, link: Link, choices: random.Random) -> None:
        self.counts: dict[str, int] = {}
        self._hatchery, self._address, self._link, self._choices = hatchery, address, link, choices
        self._there: dict[str, int] = {}
        self._n_liars = 0

    def happen(self) -> None:
        """One thing, at random."""
        things = [self.join, self.join, self.join, self.leave, self.kill, self.lie, self.cut]
        self._choices.choice([self.join] if len(self._there) < LEAST else things)()

    def join(self) -> None:
        away = [name for number in range(N_NAMES) if (name := f"volunteer {number}") not in self._there]
        if len(self._there) < MOST:
            self._hatch(self._choices.choice(away), lies=False)

    def lie(self) -> None:
        self._n_liars += 1
        self._hatch(f"liar {self._n_liars}", lies=True)

    def leave(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def cut(self) -> None:
        """Ends half of the lines for a while; those on them come back by themselves."""
        self._count("cut")
        self._link.cut()
        threading.Timer(CUT_S, self._link.mend).start()

    def _hatch(self, name: str, *, lies: bool) -> None:
        self._count("liars" if lies else "joined")
        address = self._choices.choice([self._address, f"127.0.0.1:{self._link.port}"])
        process = self._hatchery.hatch(name, address, lies=lies)
        if not lies:
            self._there[name] = process

    def _end(self, number: signal.Signals) -> None:
        name = self._choices.choice(sorted(self._there))
        self._count(number.name)
        self._hatchery.send(self._there.pop(name), number)

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


Beside = Callable[[Hatchery, str], AbstractContextManager[None]]
"""Makes what goes on at the server of this address beside the volunteers."""


def nobody(_: Hatchery, __: str) -> AbstractContextManager[None]:
    return nullcontext()


def churned(
    folder: Path,
    duration_s: float,
    seed: int,
    *,
    event_s: float,
    beside: Beside,
    step_s: float = 5.0,
) -> list[tuple[float, float]]:
    """Lets things happen for so long and checks that nothing is lost; gives the server's memory as (s, MB)."""
    said: list[str] = []
    samples: list[tuple[float, float]] = []
    with (
        serving(folder, *FLAGS, "--time-per-step", str(step_s), trial_s=0.001, limit_s=duration_s + 120.0) as (
            server,
            address,
        ),
        link_to(parse_address(address).port) as link,
        hatching(folder) as hatchery,
        beside(hatchery, address),
    ):
        reading = drained(server, said)
        churn = Churn(hatchery, address, link, random.Random(seed))
        began = time.monotonic()
        while (elapsed_s := time.monotonic() - began) < duration_s:
            churn.happen()
            if elapsed_s > WARM_UP * duration_s:
                samples.append((elapsed_s, memory_mb(server.pid)))
            time.sleep(event_s)
        until_more(folder, 2)
        assert server.poll() is None, "".join(said)
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=LIMIT_S) == 0
        reading.join()
    print(f"seed {seed}, {duration_s:.0f} s, {len(metrics_of(folder))} steps: {churn.counts}")
    check_history(folder, said)
    return samples


@pytest.mark.slow
def test_nothing_is_lost_and_nobody_drifts_while_volunteers_come_and_go_beside_nuisances(tmp_path: Path) -> None:
    churned(tmp_path, 6.0, random.randrange(2**32), event_s=0.2, beside=nuisances, step_s=0.5)


@pytest.mark.long
@pytest.mark.parametrize("beside", [nobody, nuisances])
def test_memory_does_not_grow_while_volunteers_come_and_go(tmp_path: Path, beside: Beside) -> None:
    duration_s = float(os.environ.get("FEDLEARN_CHURN_S", "1800" if beside is nobody else "300"))
    event_s = float(os.environ.get("FEDLEARN_CHURN_EVENT_S", "1"))
    seed = int(os.environ.get("FEDLEARN_CHURN_SEED", str(random.randrange(2**32))))
    samples = churned(tmp_path, duration_s, seed, event_s=event_s, beside=beside)
    growth, most = growth_mb_an_hour(samples), max(mb for _, mb in samples)
    times = [line["time"] for line in metrics_of(tmp_path)]
    print(f"memory {samples[0][1]:.1f} to {samples[-1][1]:.1f} MB, at most {most:.1f}: {growth:+.2f} MB an hour")
    print(f"longest pause {max(after - before for before, after in pairwise(times)):.1f} s")
    assert growth < 1.0 if beside is nobody else most < samples[0][1] + MOST_GROWTH_MB
