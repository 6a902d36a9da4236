"""A server with crews is killed and resumed: seats come back by themselves, and hold what it holds."""

import signal
import time
from pathlib import Path

import pytest

from tests.acceptance.crews import STEPS_BY_MEMBERS, write_task
from tests.end_to_end.processes import ended_at_exit, free_port, start, wait_for
from tests.faults.hatchery import hatching
from tests.faults.history import check_history, drained
from tests.faults.measures import until_more, until_step
from tests.patience import LIMIT_S

pytest.importorskip("torch")

SEATS = 3
FLAGS = ("--seats", str(SEATS), "--volunteers", "0", *STEPS_BY_MEMBERS)


def test_seats_of_a_killed_server_are_seated_again_by_the_next_one(tmp_path: Path) -> None:
    write_task(tmp_path)
    port = str(free_port())
    flags = ("--task", "task.py:task", "--port", port)
    with hatching(tmp_path) as hatchery:
        server = start("server.py", *flags, *FLAGS, folder=tmp_path)
        with ended_at_exit(server):
            wait_for(server, "listening on")
            for number in range(SEATS):
                hatchery.hatch(f"seat {number}", f"127.0.0.1:{port}", "--task", "")
            until_step(tmp_path, 3)
            server.send_signal(signal.SIGKILL)
        said: list[str] = []
        killed = time.monotonic()
        server = start("server.py", "--resume", "1", *flags, "--volunteers", "0", folder=tmp_path)
        with ended_at_exit(server):
            reading = drained(server, said)
            until_more(tmp_path, 3)
            print(f"three more steps {time.monotonic() - killed:.1f} s after the kill")
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=LIMIT_S) == 0
            reading.join()
    seated = [(tmp_path / f"seat {number}.out").read_text().count("this machine holds part") for number in range(SEATS)]
    assert min(seated) >= 2, "before it was killed, and after"
    # Steps are taken only where every seat's digest is the server's, and nobody was sent its part anew.
    check_history(tmp_path, said)
