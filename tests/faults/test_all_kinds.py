"""Attacks of all kinds together against one server whose volunteers come and go, for as long as one wants.

FEDLEARN_CHURN_S=1800 python -m pytest -m long -s tests/faults/test_all_kinds.py
"""

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from fedlearn.wire.errors import LocalProtocolError, RemoteProtocolError
from tests.end_to_end.processes import metrics_of
from tests.faults.callers import Caller
from tests.faults.hatchery import Hatchery
from tests.faults.measures import growth_mb_an_hour
from tests.faults.nuisances import KINDS, nuisance, own_address
from tests.faults.test_churn import churned
from tests.faults.test_floods import FLOODS
from tests.faults.test_hoarders import hoard

FLOOD_PAUSE_S = 1.0
HOARD_PAUSE_S = 10.0
MOST_GROWTH_MB = 10.0


@contextmanager
def all_kinds(hatchery: Hatchery, address: str) -> Iterator[None]:
    """One nuisance and one flooder of each kind, and hoarders, who come back whenever they are cut off."""
    over = threading.Event()

    def flooded(flood: Callable[[Caller], None]) -> None:
        with Caller(address, source=own_address(flood.__name__)) as eve:
            flood(eve)

    def hoarded() -> None:
        with ExitStack() as hoarders:
            hoard(hoarders, hatchery.folder, address, 5, 5, every=20)

    def keep(attack: Callable[[], None], pause_s: float) -> None:
        while not over.wait(pause_s):
            with suppress(AssertionError, OSError, LocalProtocolError, RemoteProtocolError):
                attack()

    with ExitStack() as held:
        for kind in KINDS:
            held.enter_context(nuisance(kind, hatchery, address, f"nuisance {kind}"))
        kept = [(partial(flooded, flood), FLOOD_PAUSE_S) for flood in FLOODS]
        threads = [threading.Thread(target=keep, args=each, daemon=True) for each in [*kept, (hoarded, HOARD_PAUSE_S)]]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:  # their server has gone by now
                thread.join()


@pytest.mark.long
def test_no_step_is_lost_and_memory_does_not_grow_under_attacks_of_all_kinds(tmp_path: Path) -> None:
    duration_s = float(os.environ.get("FEDLEARN_CHURN_S", "300"))
    seed = int(os.environ.get("FEDLEARN_CHURN_SEED", str(random.randrange(2**32))))
    samples = churned(tmp_path, duration_s, seed, event_s=1.0, beside=all_kinds)
    growth = growth_mb_an_hour(samples)
    times = [line["time"] for line in metrics_of(tmp_path)]
    print(
        f"memory {samples[0][1]:.1f} to {samples[-1][1]:.1f} MB, at most {max(mb for _, mb in samples):.1f}: "
        f"{growth:+.2f} MB an hour; longest pause {max(after - before for before, after in pairwise(times)):.1f} s"
    )
    assert max(mb for _, mb in samples) < samples[0][1] + MOST_GROWTH_MB
