import socket
import time
from pathlib import Path

from fedlearn.wire.messages import Farewell
from tests.faults.scenes import Attacker, serving

MAX_FILES = 400
N_CONNECTIONS = 500


def test_more_connections_than_files_leave_the_server_at_work(tmp_path: Path) -> None:
    with serving(tmp_path, max_files=MAX_FILES) as server:
        server.until_step(2)
        began = time.time()
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(N_CONNECTIONS)]
        server.until_step(len(server.steps()) + 5)
        while True:  # only so many hear the reason at once
            late = Attacker(server.port)
            late.hello()
            if heard := late.hear():
                break
            late.close()
        (farewell,) = heard
        assert isinstance(farewell, Farewell)
        n_open, pause_s = server.n_sockets, server.longest_pause_s(began)
        print(f"{N_CONNECTIONS} connections at {MAX_FILES} files: {n_open} open, longest pause {pause_s:.2f} s")
        assert (farewell.kind, farewell.reason.partition(":")[0]) == ("try_again", "the server is full")
        assert n_open < MAX_FILES - 100
        assert pause_s < 3.0
        for connection in idle:
            connection.close()
        server.until_said(r"connection \d+ left")
        while True:
            eve = Attacker(server.port)
            eve.hello()
            if (heard := eve.hear()) and not isinstance(heard[0], Farewell):
                break  # there is room again
            eve.close()
        for attacker in (late, eve):
            attacker.close()
