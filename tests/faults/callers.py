"""A server process, and callers that say to it what a test wants: honest ones, liars, and men in the middle."""

import fcntl
import resource
import socket
import ssl
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self, final

from fedlearn.es.snapshot import Snapshot
from fedlearn.net.address import Address, parse_address
from fedlearn.net.tls import binding_of
from fedlearn.wire.connection import Connection
from fedlearn.wire.messages import Assignment, Challenge, Farewell, Hello, Message, Ready, Start
from fedlearn.wire.proof import Credentials, prove
from tests.end_to_end.processes import ended_at_exit, output_of, start, wait_for
from tests.identities import ADA, hello_of
from tests.patience import LIMIT_S

SOON_S = LIMIT_S
FIT = """
import os
import time
import fedlearn
import numpy as np

target = np.linspace(-1.0, 1.0, 20, dtype=np.float32)
trial_s = float(os.environ.get("TRIAL_S", "{trial_s}"))

def loss(arrays):
    if trial_s:
        time.sleep(trial_s)
    return float(((arrays["vector"][:20] - target) ** 2).mean())

task = fedlearn.function(loss, {{"vector": np.zeros({n_parameters})}}, covariance=False)
"""
FLAGS = ["--task", "fit.py:task", "--group-size", "8", "--sigma", "0.05", "--learning-rate", "0.05"]
FLAGS += ["--population-limit", "64", "--time-per-step", "1", "--threads", "1", "--port", "0", "--sample-time", "0"]
OPEN = ["--volunteers", "1", "--connections-per-address", "0", "--joins-per-minute", "0", "--audit", "0"]
"""For attacks on what lies behind the gate, by results that nobody computed."""

SAID_BYTES = 2**20
"""That a server may print while nobody reads it."""


@contextmanager
def serving(
    folder: Path,
    *flags: str,
    n_parameters: int = 20,
    trial_s: float = 0.0,
    max_files: int = 0,
    limit_s: float = LIMIT_S,
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server, and the address in the line that it prints.

    A trial sleeps for `trial_s`, so that what is measured is not the processors of this machine.
    """
    (folder / "fit.py").write_text(FIT.format(n_parameters=n_parameters, trial_s=trial_s))
    server = start("server.py", *FLAGS, *flags, folder=folder, limit_s=limit_s)
    with ended_at_exit(server):
        if max_files:
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (max_files, max_files))
        fcntl.fcntl(output_of(server), fcntl.F_SETPIPE_SZ, SAID_BYTES)
        # A server that trains alone says where it listens, and no more.
        line, _ = wait_for(server, r"join with: .* join --task \S+ (\S+)|listening on (\S+) \(.*\)(?!; join)")
        yield server, line


def volunteer(folder: Path, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    flags = ["--task", "fit.py:task", "--threads", "1", "--once", *arguments]
    return start("client.py", *flags, folder=folder, limit_s=LIMIT_S, **environ)


def refusal_of(process: subprocess.Popen[str]) -> str:
    """What a volunteer that is refused says last; checks that it is told without a traceback."""
    shown, _ = process.communicate(timeout=SOON_S)
    assert process.returncode == 1, shown
    assert "Traceback" not in shown
    return shown.splitlines()[-1]


@final
class Caller:
    """A socket and the protocol; keeps all messages that came."""

    def __init__(self, address: str | Address, *, receive_buffer: int = 0, source: str = "") -> None:
        """`source`: the address of this machine from which it comes, such as any that begins with 127."""
        self.address = parse_address(address) if isinstance(address, str) else address
        self.connection = Connection("client", now=time.monotonic())
        self.heard: list[Message] = []
        self.binding = b""
        self.is_cut_off = False
        self._unread: deque[Message] = deque()
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(SOON_S)
        try:
            self._connect(source)
        except BaseException:
            self.socket.close()
            raise

    def _connect(self, source: str) -> None:
        if source:
            self.socket.bind((source, 0))
        self.socket.connect((self.address.host, self.address.port))
        if self.address.has_tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            secured = context.wrap_socket(self.socket)
            self.binding = binding_of(secured.getpeercert(binary_form=True) or b"")
            self.socket = secured

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def say(self, message: Message) -> None:
        self.connection.send(message)
        self.send(self.connection.data_to_send())

    def send(self, data: bytes) -> None:
        """As much as the server takes."""
        try:
            self.socket.sendall(data)
        except OSError:
            self.is_cut_off = True

    def hear(self) -> Message | None:
        """The next message; None where the server hangs up."""
        while not self._unread:
            try:
                data = self.socket.recv(2**20)
            except (ConnectionResetError, ssl.SSLEOFError):
                data = b""
            if not data:
                self.is_cut_off = True
                return None
            messages = self.connection.receive_data(data, time.monotonic())
            self.heard += messages
            self._unread += messages
        return self._unread.popleft()

    def until(self, kind: type[Message] | tuple[type[Message], ...]) -> Message:
        """The next message of a kind."""
        while (message := self.hear()) is not None:
            if isinstance(message, kind):
                return message
        raise AssertionError(f"expected {kind}, was cut off")

    def challenge(self, hello: Hello) -> Challenge:
        self.say(hello)
        heard = self.hear()
        assert isinstance(heard, Challenge), heard
        return heard

    def enter(self, credentials: Credentials = ADA, name: str = "Ada") -> Message | None:
        """Says Hello and gives the proof; what is answered."""
        hello = hello_of(credentials, name)
        self.say(hello)
        answer = self.hear()
        if not isinstance(answer, Challenge):
            return answer
        self.say(prove(credentials, hello, answer, self.binding))
        return self.hear()

    def join(self, credentials: Credentials = ADA, name: str = "Ada") -> Assignment:
        """Enters, and says what it takes to be given a lease; a digest that it could not know is not put right."""
        self.enter(credentials, name)
        while True:
            begun = self.until((Snapshot, Start, Assignment))
            if isinstance(begun, Assignment):
                return begun
            assert isinstance(begun, Snapshot | Start)
            self.say(Ready(begun.step, begun.digest))

    def refused(self) -> str:
        """The reason of the Farewell that ends it; checks that nothing of the run was said."""
        while self.hear() is not None:
            pass
        farewell = self.heard[-1]
        assert isinstance(farewell, Farewell), farewell
        assert all(isinstance(message, Challenge | Farewell) for message in self.heard)
        return f"{farewell.kind}: {farewell.reason}"
