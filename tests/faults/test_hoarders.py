import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from fedlearn.server.connection_policy import ConnectionPolicy
from tests.faults.callers import OPEN, serving
from tests.faults.measures import longest_pause_s, memory_mb, n_sockets, peak_memory_mb, until_more, until_step
from tests.faults.nuisances import hoard
from tests.patience import LIMIT_S, until

N_PARAMETERS = 1_000_000
"""A Snapshot of 12 MB."""

MOST_MB = 200.0


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
