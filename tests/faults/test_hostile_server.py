"""A server that wants more of a volunteer's machine than its owner gives."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedlearn.es.snapshot import MAX_SLOTS, Snapshot
from fedlearn.net.channel import Channel
from fedlearn.net.tcp import TcpStream
from fedlearn.wire.connection import Connection
from fedlearn.wire.messages import Farewell, Goodbye, Message
from tests.client.hostile import ATTACKS, BLOCK, Attack, answers, opening, order
from tests.end_to_end.processes import ROOT, ended_at_exit, start, wait_for
from tests.patience import LIMIT_S

MAX_MEMORY = 200 * 10**6
IDLE_BYTES = 90 * 10**6
"""What a client takes before it has heard of any run."""
LEAVES_S = 30.0
"""Half of the minute that its loss hangs."""
"""A second on a machine with nothing else to do; it has, where tests run side by side."""
BACKLOG = "memory: expected orders as fast as this machine takes them"

MEASURES = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:])
print("peak", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
"""
"""In a small process of its own: the peak of a process counts what started it, too."""

HANGS = """
import time
import numpy as np
import fedlearn


def loss(arrays):
    print("it hangs", flush=True)
    time.sleep(60)
    return 0.0


task = fedlearn.function(loss, {"vector": np.zeros(4)})
"""
FLAGS = ["--task", "hangs.py:task", "--group-size", "2", "--sigma", "0.05", "--learning-rate", "0.05"]
FLAGS += ["--population-limit", "4", "--time-per-step", "60", "--volunteers", "0", "--port", "0", "--sample-time", "0"]


def large_snapshot() -> Attack:
    weights = np.zeros(4 * 10**6, dtype=np.float32)
    slots = {str(number): weights for number in range(MAX_SLOTS)}
    return Attack([*opening()[:2], Snapshot(0, bytes(8), weights, slots, {})], [], "Snapshot: expected at most")


def backlog() -> Attack:
    """Orders that arrive faster than anybody can follow them."""
    slow = order(group_size=2**14, quota=2**14)
    ended = Farewell("run_ended", "it was followed all the same")
    return Attack(opening(sequence_length=2**12, hidden_size=16), [*slow, *[BLOCK] * 200, ended], BACKLOG)


PROCESSES: dict[str, Callable[[], Attack]] = {
    **{name: ATTACKS[name] for name in ("hidden size", "batch", "groups of an Update", "group size within a Result")},
    "snapshot": large_snapshot,
    "backlog": backlog,
}


def attacked(attack: Attack, folder: Path) -> tuple[str, int, list[Message]]:
    """What a client's process prints, the bytes that it took at most, and what it said."""
    heard: list[Message] = []

    async def main() -> tuple[str, int]:
        over = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            channel = Channel(
                Connection("server", now=time.monotonic()), TcpStream(reader, writer), max_queued_bytes=2**31
            )

            def receive(message: Message) -> None:
                heard.append(message)
                for answer in answers(attack, message):
                    channel.send(answer)

            await channel.run(receive)
            over.set()

        async with asyncio.timeout(LIMIT_S), await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            flags = ["--server", f"127.0.0.1:{port}", "--threads", "1", "--once"]
            flags += ["--max-memory", f"{MAX_MEMORY // 10**6}MB"]
            command = [sys.executable, "-S", "-c", MEASURES, sys.executable, str(ROOT / "client.py"), *flags]
            done = await asyncio.to_thread(subprocess.run, command, cwd=folder, capture_output=True, text=True)
            await over.wait()
            shown, _, peak = (done.stdout + done.stderr).rpartition("peak ")
            return shown, int(peak) * 1024

    return *asyncio.run(main()), heard


@pytest.mark.parametrize("name", PROCESSES)
def test_client_stays_within_its_memory_and_leaves_in_words(name: str, tmp_path: Path) -> None:
    attack = PROCESSES[name]()
    shown, peak, heard = attacked(attack, tmp_path)
    print(f"{name}: {peak / 1e6:.0f} MB, of {MAX_MEMORY / 1e6:.0f} MB and {IDLE_BYTES / 1e6:.0f} MB to begin with")
    assert "Traceback" not in shown
    assert peak < IDLE_BYTES + MAX_MEMORY
    assert attack.answer in shown
    assert isinstance(heard[-1], Goodbye) or name == "snapshot"  # which breaks the protocol
    assert peak < IDLE_BYTES + MAX_MEMORY / 2


def test_client_ends_with_its_server_though_the_loss_does_not(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    server = start("server.py", *FLAGS, folder=tmp_path)
    with ended_at_exit(server):
        port, _ = wait_for(server, r"listening on 127\.0\.0\.1:(\d+)")
        address = ["--task", "hangs.py:task", "--server", f"127.0.0.1:{port}", "--threads", "1", "--once"]
        client = start("client.py", *address, folder=tmp_path)
        with ended_at_exit(client):
            wait_for(client, "it hangs")
            server.kill()
            assert client.wait(timeout=LEAVES_S) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_client_ends_within_a_second_though_the_loss_does_not(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    server = start("server.py", *FLAGS, folder=tmp_path)
    with ended_at_exit(server):
        port, _ = wait_for(server, r"listening on 127\.0\.0\.1:(\d+)")
        address = ["--task", "hangs.py:task", "--server", f"127.0.0.1:{port}", "--threads", "1", "--name", "Ada"]
        client = start("client.py", *address, folder=tmp_path)
        with ended_at_exit(client):
            wait_for(client, "it hangs")
            began = time.monotonic()
            client.send_signal(number)
            assert client.wait(timeout=LEAVES_S) == 0
            took_s = time.monotonic() - began
            print(f"{number.name}: the client ended after {took_s:.2f} s of a minute")
            wait_for(server, "Ada left: the volunteer left")
