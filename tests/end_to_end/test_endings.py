"""How servers and clients end: by a signal, on a full disk, after a time, when a loss diverges, by a refusal."""

import asyncio
import re
import signal
import subprocess
from pathlib import Path

import pytest

from fedlearn.net.channel import Channel
from fedlearn.net.tcp import TcpStream
from fedlearn.wire.connection import Connection
from fedlearn.wire.messages import Farewell, Hello, Message
from tests.end_to_end.processes import (
    SHORT_STEPS,
    ended_at_exit,
    fedlearn,
    final_digest,
    free_port,
    metrics_of,
    output_of,
    start,
    start_anew,
    wait_for,
)
from tests.patience import LIMIT_S


@pytest.mark.parametrize("interrupt", [signal.SIGINT, signal.SIGHUP])
def test_interrupting_the_server_ends_everything_cleanly(tmp_path: Path, interrupt: signal.Signals) -> None:
    server = start("server.py", "--port", "0", "--threads", "1", "--population-limit", "640", folder=tmp_path)
    with ended_at_exit(server):
        wait_for(server, r"^step +\d+")
        server.send_signal(interrupt)
        _, read = wait_for(server, "the server was stopped")
        assert server.wait(timeout=LIMIT_S) == 0
    assert "Traceback" not in read
    log = (tmp_path / "trainingRuns/1/local-1.log").read_text()
    assert re.search(r"joined run 1 at step 0: \d+ parameters(.|\n)*this machine took", log)
    assert "equal to" in fedlearn("replay", "1", folder=tmp_path)


def test_interrupting_a_client_ends_it_cleanly(tmp_path: Path) -> None:
    client = start("client.py", "--server", f"127.0.0.1:{free_port()}", folder=tmp_path)
    with ended_at_exit(client):
        wait_for(client, "no server answers")
        client.send_signal(signal.SIGHUP)
        assert client.wait(timeout=LIMIT_S) == 0


@pytest.mark.parametrize("script", ["server.py", "client.py"])
def test_interrupting_the_start_is_quiet(tmp_path: Path, script: str) -> None:
    (tmp_path / "msgspec.py").write_text("raise KeyboardInterrupt")
    process = start_anew(script, folder=tmp_path, PYTHONPATH=str(tmp_path))
    with ended_at_exit(process):
        assert output_of(process).read() == ""
        assert process.wait(timeout=LIMIT_S) == 130


ENDLESS = """import threading
import numpy as np
import fedlearn

def loss(arrays):
    print("the loss was asked for", flush=True)
    threading.Event().wait()

task = fedlearn.function(loss, {"x": np.zeros(3)})
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_while_a_run_is_prepared_leaves_no_folder(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    server = start("server.py", "--port", "0", "--volunteers", "0", "--task", "endless.py:task", folder=tmp_path)
    with ended_at_exit(server):
        wait_for(server, "the loss was asked for")
        assert (tmp_path / "trainingRuns/1").exists()
        server.send_signal(number)
        assert "Traceback" not in output_of(server).read()
        assert server.wait(timeout=LIMIT_S) == 128 + number
    assert list((tmp_path / "trainingRuns").iterdir()) == []


VALLEYS = """import numpy as np
import fedlearn

def loss(arrays):
    x = arrays["x"].astype(np.float64)
    return float("nan") if x[0] > 3.7 else (10 + x**2 - 10 * np.cos(2 * np.pi * x)).sum()

task = fedlearn.function(loss, {"x": np.full(3, 3.0)})
"""


def test_a_run_that_finds_nothing_more_looks_elsewhere_and_ends_at_its_best(tmp_path: Path) -> None:
    (tmp_path / "valleys.py").write_text(VALLEYS)
    task = ["--task", "valleys.py:task"]
    server = start("server.py", "--port", "0", "--threads", "1", "--restarts", "2", *task, folder=tmp_path)
    with ended_at_exit(server):
        read = output_of(server).read()
        assert server.wait(timeout=LIMIT_S) == 0
    kept = re.findall(r"no longer differ, at a loss of (\S+); attempt \d begins elsewhere", read)
    assert len(kept) == 2
    (found,) = re.findall(r"at its end: members' losses no longer differ from (\S+); step \d+ is saved", read)
    assert float(found) <= min(map(float, kept)) + 1e-6
    assert re.search(r"--restarts 4 of a new run tries other places, too\nstep +\d+ +validation loss", read)
    again = fedlearn("serve", "--resume", "latest", *task, "--port", "0", folder=tmp_path)
    assert f"no longer differ from {found}; " in again
    assert "all files are complete and belong together" in fedlearn("check", "latest", folder=tmp_path)


def test_a_full_disk_ends_the_run_with_one_message(tmp_path: Path) -> None:
    server = start("server.py", "--port", "0", "--threads", "1", "--population-limit", "640", folder=tmp_path)
    with ended_at_exit(server):
        wait_for(server, r"^step +\d+")
        checkpoints = tmp_path / "trainingRuns/1/checkpoints"
        checkpoints.rmdir()
        checkpoints.touch()  # nobody can write into it, not even root
        server.send_signal(signal.SIGINT)
        read = output_of(server).read()
        assert server.wait(timeout=LIMIT_S) == 1
    assert read.count("could not be written") == 1
    assert "server.py: " in read
    assert "Traceback" not in read
    assert "exception" not in read.lower()


@pytest.mark.slow
def test_a_client_comes_back_to_a_server_that_was_killed_and_resumed(tmp_path: Path) -> None:
    port = str(free_port())
    server = start("server.py", "--port", port, "--volunteers", "0", *SHORT_STEPS, folder=tmp_path)
    client = start("client.py", "--server", f"127.0.0.1:{port}", "--threads", "1", "--name", "loyal", folder=tmp_path)
    with ended_at_exit(server, client):
        wait_for(server, r"^step +\d+")
        server.send_signal(signal.SIGKILL)
        wait_for(client, "trying again")
        n_steps = len(metrics_of(tmp_path))
        again = ["--port", port, "--volunteers", "0", "--steps", str(n_steps + 5)]
        resumed = start("server.py", "--resume", "1", *again, folder=tmp_path)
        with ended_at_exit(resumed):
            wait_for(resumed, "loyal joined")
            wait_for(resumed, f"all {n_steps + 5} steps are done")
            assert resumed.wait(timeout=LIMIT_S) == 0
        digest = final_digest(client)
    last = metrics_of(tmp_path)[-1]
    assert (last["step"], last["digest"]) == (n_steps + 4, digest)
    assert "equal to" in fedlearn("replay", "1", folder=tmp_path)


def test_a_run_of_a_given_duration_ends_by_itself(tmp_path: Path) -> None:
    flags = ["--port", "0", "--threads", "1", "--duration", "1", "--perturb", "weights", "--verbose"]
    server = start("server.py", *flags, *SHORT_STEPS, folder=tmp_path)
    with ended_at_exit(server):
        printed, read = wait_for(server, r"the 1 s of training are over; step \d+ is saved; go on with: (.*)$")
        assert server.wait(timeout=LIMIT_S) == 0
    assert metrics_of(tmp_path)
    assert "equal to" in fedlearn("replay", "1", folder=tmp_path)
    # Twice the duration, or twice the time that passed where the machine was busy.
    (duration,) = re.findall(r" --duration (\d+)$", printed)
    assert int(duration) >= 2
    again = subprocess.run(
        ["sh", "-c", printed], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=LIMIT_S
    )
    assert f"the {duration} s of training are over" in again.stdout
    # Twice a shorter duration would be over at once; twice the whole seconds that passed would not.
    passed = int(metrics_of(tmp_path)[-1]["elapsed_s"])
    resumed = start("server.py", "--resume", "1", "--duration", "0.25", "--port", "0", folder=tmp_path)
    with ended_at_exit(resumed):
        wait_for(resumed, rf"the 0\.25 s of training are over; .* --duration {2 * passed}$")
    # What was not given was chosen, with reasons.
    chosen = re.findall(r"^(\w+) = ", read, re.MULTILINE)
    assert chosen == ["hidden_size", "group_size", "sigma", "learning_rate"]
    assert re.search(r"^learning_rate = 0\.0\d+: .* in a run with an end", read, re.MULTILINE)


@pytest.mark.slow
def test_a_run_that_diverges_says_so_and_can_be_taken_back(tmp_path: Path) -> None:
    flags = ["--port", "0", "--threads", "1", "--hidden-size", "8", "--learning-rate", "1000", *SHORT_STEPS]
    server = start("server.py", *flags, folder=tmp_path)
    with ended_at_exit(server):
        step, _ = wait_for(server, r"the run diverged: .*; go back to its best step with: .* rollback \S+/1 (\d+)$")
        assert server.wait(timeout=LIMIT_S) == 2
    assert int(step) < 5
    assert f"run 1 stands at step {step}" in fedlearn("rollback", "1", step, folder=tmp_path)


def test_a_client_tells_why_it_was_refused(tmp_path: Path) -> None:
    """By a server of another version, which lives in this process."""
    greetings: list[Message] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel = Channel(Connection("server", now=0.0), TcpStream(reader, writer), max_queued_bytes=2**20)

        def answer(message: Message) -> None:
            greetings.append(message)
            channel.send(Farewell("refused", "protocol version: expected 3, got 2"))

        await channel.run(answer)

    async def converse() -> None:
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            client = start("client.py", "--server", f"127.0.0.1:{port}", "--name", "old", folder=tmp_path)
            with ended_at_exit(client):
                await asyncio.to_thread(wait_for, client, "refused: protocol version: expected 3, got 2")
                assert await asyncio.to_thread(client.wait, 30) == 1

    asyncio.run(converse())
    (hello,) = greetings
    assert isinstance(hello, Hello)
    assert hello.name == "old"
