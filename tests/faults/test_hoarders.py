import time
from pathlib import Path

import pytest

from fedlearn.es.snapshot import Snapshot
from fedlearn.server.door import Door
from fedlearn.wire.frames import headers
from fedlearn.wire.messages import Ready, Start
from tests.faults.scenes import Attacker, ServerProcess, serving

N_PARAMETERS = 1_000_000
"""A Snapshot of 12 MB."""

MOST_MB = 200.0


def hoard(server: ServerProcess, n_silent: int, n_unfinished: int, *, every: int) -> list[Attacker]:
    """Peers that ask for weights and never read, and peers that begin a Result and never end it.

    Every so many ask for the weights of another step.
    """
    unfinished = headers(bytes(4096), message_type=3, stream=1)[0] + bytes(4000)
    hoarders = []
    for number in range(n_silent + n_unfinished):
        eve = Attacker(server.port, receive_buffer=4096)
        eve.hello(f"hoarder {number}")
        if number < n_silent:
            begun = eve.until((Snapshot, Start))
            assert isinstance(begun, Snapshot | Start)
            eve.say(Ready(begun.step, b"nonsense"))  # to which the answer is all weights
        else:
            eve.send(unfinished)
        hoarders.append(eve)
        if number % every == 0:
            server.until_step(len(server.steps()))
    return hoarders


def test_peers_that_never_read_hold_little(tmp_path: Path) -> None:
    with serving(tmp_path, n_parameters=N_PARAMETERS) as server:
        server.until_step(3)
        before, n_sockets, began = server.peak_memory_mb, server.n_sockets, time.time()
        hoarders = hoard(server, 30, 20, every=1)
        server.until_step(len(server.steps()) + 5)
        grown, pause_s = server.peak_memory_mb - before, server.longest_pause_s(began)
        print(f"30 that never read, 20 that never end a Result: +{grown:.0f} MB, longest pause {pause_s:.2f} s")
        for eve in hoarders:
            eve.close()
        while server.n_sockets > n_sockets:
            time.sleep(0.01)
    assert grown < MOST_MB
    assert pause_s < 3.0


@pytest.mark.long
def test_a_thousand_hostile_connections_hold_at_most_200_mb_and_are_gone_by_themselves(tmp_path: Path) -> None:
    Door()  # lets this process open as many files
    with serving(tmp_path, n_parameters=N_PARAMETERS) as server:
        server.until_step(3)
        before, n_sockets, began = server.peak_memory_mb, server.n_sockets, time.time()
        hoarders = hoard(server, 500, 500, every=10)
        server.until_step(len(server.steps()) + 10)
        n_most = server.n_sockets
        while server.n_sockets > n_sockets:
            time.sleep(0.1)
        grown, pause_s = server.peak_memory_mb - before, server.longest_pause_s(began)
        left_mb = server.memory_mb - before
        print(
            f"1,000 hostile connections, {n_most} at once: +{grown:.0f} MB at most, {left_mb:+.0f} MB in the end; "
            f"all gone after {time.time() - began:.0f} s; longest pause {pause_s:.2f} s"
        )
        for eve in hoarders:
            eve.close()
    assert grown < MOST_MB
    assert pause_s < 5.0
