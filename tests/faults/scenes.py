"""A server of its own process under attack, and what its system says of it."""

import json
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import final

from fedlearn.es.snapshot import Snapshot
from fedlearn.wire.connection import Connection
from fedlearn.wire.messages import Assignment, Challenge, Message, Ready, Start
from tests.end_to_end.processes import LIMIT_S, ROOT
from tests.identities import hello_of, named, proof_of

TASK = """
import numpy as np
import fedlearn

task = fedlearn.function(lambda arrays: float(arrays["a"][0]), {{"a": np.ones({n_parameters}, np.float32)}},
                         settings={{"sigma": 0.02, "learning_rate": 0.001}})
"""


@final
class ServerProcess:
    """`fedlearn serve` of a trivial function with so many parameters, its own volunteer included."""

    def __init__(self, folder: Path, *, n_parameters: int = 1000, max_files: int = 0, volunteers: int = 1) -> None:
        self.folder = folder
        (folder / "tiny.py").write_text(TASK.format(n_parameters=n_parameters))
        flags = ["--task", "tiny.py:task", "--host", "127.0.0.1", "--port", "0", "--volunteers", str(volunteers)]
        flags += ["--group-size", "8", "--population-limit", "64", "--time-per-step", "1", "--sample-time", "0"]
        # What is attacked lies behind the gate, and results that nobody computed are not what is looked at.
        flags += ["--connections-per-address", "0", "--joins-per-minute", "0", "--audit", "0"]

        def bound() -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max_files, max_files))

        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "server.py"), *flags],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=bound if max_files else None,
        )
        self.said = ""
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()
        self.port = int(self.until_said(r"listening on \S+:(\d+)"))

    def until_said(self, pattern: str) -> str:
        """The first group of what its terminal shows."""
        for _ in self._patiently(f"{pattern!r} said"):
            if found := re.search(pattern, self.said):
                return found.group(found.lastindex or 0)
        raise AssertionError

    def until_step(self, step: int) -> None:
        """Until so many steps are written."""
        for _ in self._patiently(f"step {step}"):
            if len(self.steps()) > step:
                return

    def steps(self) -> list[dict[str, float]]:
        """The lines of metrics."""
        path = self.folder / "trainingRuns/1/metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def members_per_s(self, duration_s: float) -> float:
        """Members that count, measured for so long."""
        began = time.time()
        time.sleep(duration_s)
        return sum(step["members"] for step in self.steps() if began < step["time"]) / duration_s

    def longest_pause_s(self, since: float) -> float:
        """The longest time without a step."""
        times = [since, *(step["time"] for step in self.steps() if step["time"] > since), time.time()]
        return max(after - before for before, after in pairwise(times))

    @property
    def memory_mb(self) -> float:
        return self._status("VmRSS")

    @property
    def peak_memory_mb(self) -> float:
        return self._status("VmHWM")

    @property
    def n_sockets(self) -> int:
        """Open connections, the listening one among them."""
        n_sockets = 0
        for file in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                n_sockets += "socket" in str(file.readlink())
        return n_sockets

    def _status(self, name: str) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"{name}:\s+(\d+) kB", text)
        assert found is not None
        return int(found.group(1)) / 1024

    def end(self) -> None:
        """Ends it, and with it its volunteers."""
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._listening.join()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.said += line

    def _patiently(self, what: str) -> Iterator[None]:
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            assert self.process.poll() is None, f"expected {what}, the server ended:\n{self.said}"
            yield
            time.sleep(0.01)
        raise AssertionError(f"expected {what}:\n{self.said}")


@contextmanager
def serving(
    folder: Path, *, n_parameters: int = 1000, max_files: int = 0, volunteers: int = 1
) -> Iterator[ServerProcess]:
    """The server, ended with its volunteers."""
    server = ServerProcess(folder, n_parameters=n_parameters, max_files=max_files, volunteers=volunteers)
    try:
        yield server
    finally:
        server.end()


@final
class Attacker:
    """A client whose every byte is the test's."""

    def __init__(self, port: int, *, receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(20.0)
        self.socket.connect(("127.0.0.1", port))
        self.connection = Connection("client", now=0.0)
        self.is_cut_off = False
        self._unheard: list[Message] = []

    def say(self, message: Message) -> None:
        self.connection.send(message)
        self.send(self.connection.data_to_send(2**30))

    def send(self, data: bytes) -> None:
        """As much as the server takes."""
        try:
            self.socket.sendall(data)
        except OSError:
            self.is_cut_off = True

    def hello(self, name: str = "Eve") -> None:
        """Until it has proven who it is, or is not asked to."""
        credentials = named(name)
        hello = hello_of(credentials, name)
        self.say(hello)
        heard = self.hear()
        if heard and isinstance(challenge := heard[0], Challenge):
            self.say(proof_of(credentials, hello, challenge))
            del heard[0]
        self._unheard += heard

    def hear(self) -> list[Message]:
        """What comes next; nothing once it is cut off."""
        if self._unheard:
            heard, self._unheard = self._unheard, []
            return heard
        try:
            data = self.socket.recv(2**20)
        except OSError:
            data = b""
        self.is_cut_off |= not data
        return self.connection.receive_data(data, 0.0)

    def until(self, kind: type[Message] | tuple[type, ...]) -> Message:
        while not self.is_cut_off:
            for message in self.hear():
                if isinstance(message, kind):
                    return message
        raise AssertionError(f"expected {kind}, was cut off")

    def join(self, name: str = "Eve") -> Assignment:
        """Until a lease comes; a digest that it could not know is put right by a Snapshot."""
        self.hello(name)
        while True:
            begun = self.until((Snapshot, Start, Assignment))
            if isinstance(begun, Assignment):
                return begun
            assert isinstance(begun, Snapshot | Start)
            self.say(Ready(begun.step, begun.digest))

    def close(self) -> None:
        self.socket.close()
