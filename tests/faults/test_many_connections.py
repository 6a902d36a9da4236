import socket
import time
from contextlib import ExitStack
from pathlib import Path

from fedlearn.net.address import parse_address
from fedlearn.wire.messages import Farewell, Welcome
from tests.end_to_end.processes import wait_for
from tests.faults.callers import OPEN, Caller, serving
from tests.faults.measures import longest_pause_s, n_sockets, until_more, until_step

MAX_FILES = 400
N_CONNECTIONS = 500


def test_more_connections_than_files_leave_the_server_at_work(tmp_path: Path) -> None:
    with serving(tmp_path, *OPEN, max_files=MAX_FILES) as (server, line), ExitStack() as held:
        address = parse_address(line)
        until_step(tmp_path, 2)
        began = time.time()
        idle = [socket.create_connection((address.host, address.port)) for _ in range(N_CONNECTIONS)]
        until_more(tmp_path, 5)
        farewell = None
        while farewell is None:  # only so many hear the reason at once
            farewell = held.enter_context(Caller(address)).enter()
        assert isinstance(farewell, Farewell)
        n_open, pause_s = n_sockets(server.pid), longest_pause_s(tmp_path, began)
        print(f"{N_CONNECTIONS} connections at {MAX_FILES} files: {n_open} open, longest pause {pause_s:.2f} s")
        assert (farewell.kind, farewell.reason.partition(":")[0]) == ("try_again", "the server is full")
        assert n_open < MAX_FILES - 100
        for connection in idle:
            connection.close()
        wait_for(server, r"connection \d+ left")
        while not isinstance(held.enter_context(Caller(address)).enter(), Welcome):
            pass  # until there is room again
