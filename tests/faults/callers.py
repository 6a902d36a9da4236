"""A server process, and callers that say to it what a test wants: honest ones, liars, and men in the middle."""

import socket
import ssl
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self, final

from fedlearn.net.address import Address, parse_address
from fedlearn.net.tls import binding_of
from fedlearn.wire.connection import Connection
from fedlearn.wire.messages import Challenge, Farewell, Hello, Message
from fedlearn.wire.proof import Credentials, prove
from tests.end_to_end.processes import ended_at_exit, start, wait_for
from tests.identities import ADA, hello_of

SOON_S = 30.0
FIT = """
import fedlearn
import numpy as np

target = np.linspace(-1.0, 1.0, 20, dtype=np.float32)

def loss(arrays):
    return float(((arrays["vector"] - target) ** 2).mean())

task = fedlearn.function(loss, {"vector": np.zeros(20)})
"""
FLAGS = ["--task", "fit.py:task", "--group-size", "8", "--sigma", "0.05", "--learning-rate", "0.05"]
FLAGS += ["--population-limit", "64", "--time-per-step", "1", "--threads", "1", "--port", "0"]


@contextmanager
def serving(folder: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server, and the address in the line that it prints."""
    (folder / "fit.py").write_text(FIT)
    server = start("server.py", *FLAGS, *flags, folder=folder)
    with ended_at_exit(server):
        line, _ = wait_for(server, r"join with: fedlearn join --task \S+ (\S+)")
        yield server, line


def volunteer(folder: Path, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    return start("client.py", "--task", "fit.py:task", "--threads", "1", "--once", *arguments, folder=folder, **environ)


def refusal_of(process: subprocess.Popen[str]) -> str:
    """What a volunteer that is refused says last; checks that it is told without a traceback."""
    shown, _ = process.communicate(timeout=SOON_S)
    assert process.returncode == 1, shown
    assert "Traceback" not in shown
    return shown.splitlines()[-1]


@final
class Caller:
    """A socket and the protocol; keeps all messages that came."""

    def __init__(self, address: str | Address) -> None:
        self.address = parse_address(address) if isinstance(address, str) else address
        self.connection = Connection("client", now=time.monotonic())
        self.heard: list[Message] = []
        self.binding = b""
        self._unread: deque[Message] = deque()
        self.socket = socket.create_connection((self.address.host, self.address.port), SOON_S)
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
        self.socket.sendall(self.connection.data_to_send())

    def hear(self) -> Message | None:
        """The next message; None where the server hangs up."""
        while not self._unread:
            try:
                data = self.socket.recv(65536)
            except (ConnectionResetError, ssl.SSLEOFError):
                data = b""
            if not data:
                return None
            messages = self.connection.receive_data(data, time.monotonic())
            self.heard += messages
            self._unread += messages
        return self._unread.popleft()

    def challenge(self, hello: Hello) -> Challenge:
        self.say(hello)
        heard = self.hear()
        assert isinstance(heard, Challenge), heard
        return heard

    def enter(self, credentials: Credentials = ADA) -> Message | None:
        """Says Hello and gives the proof; what is answered."""
        self.say(hello_of(credentials))
        answer = self.hear()
        if not isinstance(answer, Challenge):
            return answer
        self.say(prove(credentials, hello_of(credentials), answer, self.binding))
        return self.hear()

    def refused(self) -> str:
        """The reason of the Farewell that ends it; checks that nothing of the run was said."""
        while self.hear() is not None:
            pass
        farewell = self.heard[-1]
        assert isinstance(farewell, Farewell), farewell
        assert all(isinstance(message, Challenge | Farewell) for message in self.heard)
        return f"{farewell.kind}: {farewell.reason}"
