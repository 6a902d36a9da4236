import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from fedlearn.wire.messages import Assignment, Farewell, Ping, Ready, Result
from fedlearn.wire.parcel import pack
from tests.faults.scenes import Attacker, serving

MEASURED_S = 2.5


def old_results(eve: Attacker) -> None:
    lease = eve.join()
    losses = np.zeros(lease.quota, np.float32)
    frame = pack(Result(max(lease.step - 5, 0), lease.first_member, losses, bytes(8))).frame(0)
    while not eve.is_cut_off:
        eve.send(frame * 100)


def pings(eve: Attacker) -> None:
    eve.join()
    frame = pack(Ping()).frame(0)
    while not eve.is_cut_off:
        eve.send(frame * 100)


def false_ready(eve: Attacker) -> None:
    eve.hello()
    while not eve.is_cut_off:
        for message in eve.hear():
            if type(message).__name__ in ("Snapshot", "Start"):
                eve.say(Ready(0, b"nonsense"))
            elif isinstance(message, Assignment | Farewell):
                return


FLOODS: list[Callable[[Attacker], None]] = [old_results, pings, false_ready]


@pytest.mark.parametrize("flood", FLOODS)
def test_flooder_that_always_comes_back_costs_the_others_little(
    tmp_path: Path, flood: Callable[[Attacker], None]
) -> None:
    done = threading.Event()
    n_connections = 0

    def attack(port: int) -> None:
        nonlocal n_connections
        while not done.is_set():
            eve = Attacker(port)
            n_connections += 1
            with suppress(AssertionError, OSError):
                flood(eve)
            eve.close()

    with serving(tmp_path) as server:
        server.until_step(20)
        before = server.members_per_s(MEASURED_S)
        attacking = threading.Thread(target=attack, args=(server.port,))
        attacking.start()
        try:
            during = server.members_per_s(MEASURED_S)
        finally:
            done.set()
            attacking.join()
        after = server.members_per_s(MEASURED_S)
    ratio = during / ((before + after) / 2)
    print(f"{flood.__name__}: members a second x {ratio:.2f} during {n_connections} connections of one flooder")
    # Held to 0.95 on processors of its own: here it shares them with the flooder, and with whatever else runs.
    assert ratio > 0.5
