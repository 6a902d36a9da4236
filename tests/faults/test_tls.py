"""The line between real servers and volunteers: encrypted, pinned, and never less than was asked for."""

import re
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import final

import msgspec
import pytest

from fedlearn.net.address import Address, parse_address
from fedlearn.net.tls import make_certificate, server_context
from fedlearn.wire.messages import Welcome
from fedlearn.wire.proof import prove
from tests.end_to_end.processes import ended_at_exit, final_digest, metrics_of, wait_for
from tests.faults.callers import SOON_S, Caller, refusal_of, serving, volunteer
from tests.faults.measures import until_volunteers
from tests.identities import ADA, hello_of

Secured = tuple[Path, Address]
ON = ["--tls", "on", "--volunteers", "0"]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A folder, and the address of its server, which speaks TLS on loopback."""
    folder = tmp_path_factory.mktemp("secured")
    with serving(folder, *ON) as (server, line):
        yield folder, parse_address(line)
        assert server.poll() is None, "the server lives on, whoever came"


@final
class Between:
    """Whoever carries bytes between a volunteer and the server, and keeps a copy of all; a proxy is asked to."""

    def __init__(self, server: Address, *, is_proxy: bool) -> None:
        self.seen = bytearray()
        self.asked = b""
        self._is_proxy = is_proxy
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(SOON_S)

    def _accept(self) -> None:
        with suppress(OSError):
            near, _ = self._listener.accept()
            while self._is_proxy and not self.asked.endswith(b"\r\n\r\n"):
                self.asked += near.recv(1)
            near.sendall(b"HTTP/1.1 200 OK\r\n\r\n" if self._is_proxy else b"")
            far = socket.create_connection((self._server.host, self._server.port))
            back = threading.Thread(target=self._carry, args=(far, near), daemon=True)
            self._threads.append(back)
            back.start()
            self._carry(near, far)

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self.seen += data
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@contextmanager
def between(server: Address, *, is_proxy: bool = False) -> Iterator[Between]:
    listener = Between(server, is_proxy=is_proxy)
    try:
        yield listener
    finally:
        listener.close()


def test_line_that_the_server_prints_is_all_that_a_volunteer_needs(tmp_path: Path) -> None:
    flags = ["--host", "0.0.0.0", "--public-host", "127.0.0.1", "--volunteers", "1"]
    with serving(tmp_path, *flags) as (server, line):
        assert re.fullmatch(r"fedlearn://127\.0\.0\.1:\d+/1#[\w-]{24}", line)
        joining = volunteer(tmp_path, line, "--name", "far")
        with ended_at_exit(joining):
            until_volunteers(tmp_path, 2)
            server.send_signal(signal.SIGINT)
            digest = final_digest(joining)
        assert server.wait(timeout=SOON_S) == 0
        metrics = metrics_of(tmp_path)
        assert digest == metrics[-1]["digest"]
        # The server's own volunteer joined over the same line.
        assert "joined run 1" in (tmp_path / "trainingRuns/1/local-1.log").read_text()
        print(f"{len(metrics)} steps over TLS")


def test_listener_on_the_way_sees_nothing_of_it(secured: Secured) -> None:
    folder, address = secured
    with between(address) as listener:
        joining = volunteer(
            folder, str(msgspec.structs.replace(address, port=listener.port)), "--name", "somebody-in-particular"
        )
        with ended_at_exit(joining):
            wait_for(joining, "joined run 1 at step")
        seen = bytes(listener.seen)
        print(f"{len(seen)} bytes seen on the way")
        assert len(seen) > 1000
        assert not [text for text in (b"somebody-in-particular", b"function", b"fL\x01") if text in seen]


def test_proxy_of_an_office_brings_a_volunteer_to_the_server_and_sees_nothing(secured: Secured) -> None:
    folder, address = secured
    with between(address, is_proxy=True) as proxy:
        far = str(msgspec.structs.replace(address, host="far.example", port=443))
        joining = volunteer(folder, far, https_proxy=f"http://ada:secret@127.0.0.1:{proxy.port}", no_proxy="")
        with ended_at_exit(joining):
            wait_for(joining, "joined run 1 at step")
        assert proxy.asked.startswith(b"CONNECT far.example:443 HTTP/1.1\r\n")
        assert b"fL\x01" not in proxy.seen


def test_wrong_fingerprint_is_refused(secured: Secured) -> None:
    folder, address = secured
    other = "A" * 24
    reason = refusal_of(volunteer(folder, str(msgspec.structs.replace(address, fingerprint=other))))
    assert reason.startswith(
        f"refused: fingerprint: expected {other}, got {address.fingerprint}; somebody may be intercepting"
    )


def test_servers_own_certificate_is_refused_without_its_fingerprint(secured: Secured) -> None:
    folder, address = secured
    reason = refusal_of(volunteer(folder, str(msgspec.structs.replace(address, fingerprint=""))))
    assert reason.startswith("refused: the server's certificate: self-signed certificate")


def test_server_without_tls_is_refused_by_who_wants_it(tmp_path: Path) -> None:
    with serving(tmp_path, "--volunteers", "0") as (_, line):
        plain = parse_address(line)
        assert not plain.has_tls
        for fingerprint in ("", "A" * 24):
            reason = refusal_of(volunteer(tmp_path, str(Address(plain.host, plain.port, True, fingerprint))))
            assert reason.startswith("refused: expected TLS 1.3, the server answers otherwise")


def test_who_comes_without_tls_is_not_heard(secured: Secured) -> None:
    folder, address = secured
    plain = volunteer(folder, f"{address.host}:{address.port}")
    shown, _ = plain.communicate(timeout=SOON_S)
    assert "if the server wants encryption, join with the line that it prints" in shown
    assert "joined" not in shown
    with Caller(Address(address.host, address.port)) as caller:
        caller.say(hello_of())
        assert caller.hear() is None
        assert caller.heard == []


def test_man_in_the_middle_can_not_pass_a_proof_on(secured: Secured, tmp_path: Path) -> None:
    """He has a certificate of his own, and a volunteer that was talked into its fingerprint."""
    own = tmp_path / "own.pem"
    own.write_bytes(make_certificate())
    with Caller(secured[1]) as towards_server, socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
        proofs = []

        def deceive() -> None:
            raw, _ = listener.accept()
            with server_context(own, own).wrap_socket(raw, server_side=True) as secured_line:
                secured_line.recv(1)

        deceiving = threading.Thread(target=deceive, daemon=True)
        deceiving.start()
        with Caller(Address("127.0.0.1", port, True)) as victim:
            hello = hello_of(ADA)
            challenge = towards_server.challenge(hello)
            proofs.append(prove(ADA, hello, challenge, victim.binding))
        deceiving.join(SOON_S)
        towards_server.say(proofs[0])
        assert towards_server.refused().startswith("refused: identity: expected this conversation signed")
    with Caller(secured[1]) as caller:
        assert isinstance(caller.enter(ADA), Welcome)


def test_handshakes_that_never_end_cost_a_server_with_few_files_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, *ON) as (server, line):
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (200, 200))
        address = parse_address(line)
        silent = [socket.create_connection((address.host, address.port)) for _ in range(600)]
        try:
            began = time.monotonic()
            with Caller(address) as caller:
                assert isinstance(caller.enter(ADA), Welcome)
            print(f"600 silent connections, 200 files: let in after {time.monotonic() - began:.2f} s")
            assert server.poll() is None
        finally:
            for each in silent:
                each.close()


def test_encryption_that_is_off_says_what_that_means(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "0.0.0.0", "--tls", "off", "--volunteers", "0") as (server, line):
        assert line.startswith("fedlearn+plain://")
        said, _ = wait_for(server, r"(tls is off: .*)")
        assert "whoever is on the way reads the data and the weights" in said
