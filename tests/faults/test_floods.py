import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from fedlearn.es.snapshot import Snapshot
from fedlearn.wire.encoding.parcel import pack
from fedlearn.wire.messages import Assignment, Farewell, Ping, Ready, Result, Start
from tests.faults.callers import OPEN, Caller, serving
from tests.faults.measures import members_per_s, until_step

MEASURED_S = 2.5


def old_results(eve: Caller) -> None:
    lease = eve.join()
    losses = np.zeros(lease.quota, np.float32)
    frame = pack(Result(max(lease.step - 5, 0), lease.first_member, losses, bytes(8))).frame(0)
    while not eve.is_cut_off:
        eve.send(frame * 100)


def pings(eve: Caller) -> None:
    eve.join()
    frame = pack(Ping()).frame(0)
    while not eve.is_cut_off:
        eve.send(frame * 100)


def false_ready(eve: Caller) -> None:
    message = eve.enter()
    while message is not None and not isinstance(message, Assignment | Farewell):
        if isinstance(message, Snapshot | Start):
            eve.say(Ready(0, b"nonsense"))
        message = eve.hear()


FLOODS: list[Callable[[Caller], None]] = [old_results, pings, false_ready]


@pytest.mark.long  # it measures the machine
@pytest.mark.parametrize("flood", FLOODS)
def test_flooder_that_always_comes_back_costs_the_others_little(
    tmp_path: Path, flood: Callable[[Caller], None]
) -> None:
    done = threading.Event()
    n_connections = 0

    def attack(address: str) -> None:
        nonlocal n_connections
        while not done.is_set():
            n_connections += 1
            with suppress(AssertionError, OSError), Caller(address) as eve:
                flood(eve)

    with serving(tmp_path, *OPEN) as (_, address):
        until_step(tmp_path, 20)
        before = members_per_s(tmp_path, MEASURED_S)
        attacking = threading.Thread(target=attack, args=(address,))
        attacking.start()
        try:
            during = members_per_s(tmp_path, MEASURED_S)
        finally:
            done.set()
            attacking.join()
        after = members_per_s(tmp_path, MEASURED_S)
    ratio = during / ((before + after) / 2)
    print(f"{flood.__name__}: members a second x {ratio:.2f} during {n_connections} connections of one flooder")
    # Measured 0.8 to 1.15: it shares two processors with the flooder, and with whatever else runs.
    assert ratio > 0.65
