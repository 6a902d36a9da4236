import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from fedlearn.es.snapshot import Snapshot
from fedlearn.server.connection_policy import ConnectionPolicy
from fedlearn.wire.encoding.frames import headers
from fedlearn.wire.messages import Ready, Start
from tests.faults.callers import OPEN, Caller, serving
from tests.faults.measures import longest_pause_s, memory_mb, n_sockets, peak_memory_mb, until_more, until_step
from tests.identities import named
from tests.patience import LIMIT_S, until

N_PARAMETERS = 1_000_000
"""A Snapshot of 12 MB."""

MOST_MB = 200.0


def hoard(held: ExitStack, folder: Path, address: str, n_silent: int, n_unfinished: int, *, every: int) -> None:
    """Peers that ask for weights and never read, and peers that begin a Result and never end it.

    Every so many ask for the weights of another step.
    """
    unfinished = headers(bytes(4096), message_type=3, stream=1)[0] + bytes(4000)
    for number in range(n_silent + n_unfinished):
        eve = held.enter_context(Caller(address, receive_buffer=4096))
        eve.enter(named(f"hoarder {number}"))
        if number < n_silent:
            begun = eve.until((Snapshot, Start))
            assert isinstance(begun, Snapshot | Start)
            eve.say(Ready(begun.step, b"nonsense"))  # to which the answer is all weights
        else:
            eve.send(unfinished)
        if number % every == 0:
            until_more(folder, 0)


def until_gone(server: "subprocess.Popen[str]", n_before: int) -> None:
    """Until the server has no more sockets than it had."""
    until(lambda: n_sockets(server.pid) <= n_before, "they hold their sockets", limit_s=2 * LIMIT_S)


def test_peers_that_never_read_hold_little(tmp_path: Path) -> None:
    with serving(tmp_path, *OPEN, n_parameters=N_PARAMETERS) as (server, address), ExitStack() as held:
        until_step(tmp_path, 3)
        before, n_before, began = peak_memory_mb(server.pid), n_sockets(server.pid), time.time()
        hoard(held, tmp_path, address, 24, 8, every=1)
        until_more(tmp_path, 5)
        grown, pause_s = peak_memory_mb(server.pid) - before, longest_pause_s(tmp_path, began)
        print(f"24 that never read, 8 that never end a Result: +{grown:.0f} MB, longest pause {pause_s:.2f} s")
        held.close()
        until_gone(server, n_before)
    assert grown < MOST_MB


@pytest.mark.long
def test_a_thousand_hostile_connections_hold_at_most_200_mb_and_are_gone_by_themselves(tmp_path: Path) -> None:
    ConnectionPolicy()  # lets this process open as many files
    with serving(tmp_path, *OPEN, n_parameters=N_PARAMETERS, limit_s=600.0) as (server, address), ExitStack() as held:
        until_step(tmp_path, 3)
        before, n_before, began = peak_memory_mb(server.pid), n_sockets(server.pid), time.time()
        hoard(held, tmp_path, address, 500, 500, every=10)
        until_more(tmp_path, 10)
        n_most = n_sockets(server.pid)
        until_gone(server, n_before)
        grown, pause_s = peak_memory_mb(server.pid) - before, longest_pause_s(tmp_path, began)
        left_mb = memory_mb(server.pid) - before
        print(
            f"1,000 hostile connections, {n_most} at once: +{grown:.0f} MB at most, {left_mb:+.0f} MB in the end; "
            f"all gone after {time.time() - began:.0f} s; longest pause {pause_s:.2f} s"
        )
    assert grown < MOST_MB
