"""Lines over real sockets on loopback, to servers with all kinds of certificates, and with none."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import final

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from fedlearn.net.address import Address, fingerprint_of
from fedlearn.net.dialing import DialedLine, dial
from fedlearn.net.tls import (
    UntrustedServerError,
    binding_of,
    client_context,
    make_certificate,
    read_certificate,
    server_context,
)
from tests.net.certificates import issued, write_pem
from tests.net.peers import SOON_S, closed, others_ended

YEAR = timedelta(365)


@final
class Listener:
    """A server that keeps what it is sent."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.is_closed = asyncio.Event()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1000):
                self.heard.append(data)
                writer.write(b"heard")
        except OSError:
            pass
        writer.close()
        await closed(writer)
        self.is_closed.set()


@asynccontextmanager
async def listening(context: ssl.SSLContext | None) -> AsyncIterator[tuple[Listener, int]]:
    listener = Listener()
    server = await asyncio.start_server(listener.accept, "127.0.0.1", 0, ssl=context)
    async with server:
        yield listener, server.sockets[0].getsockname()[1]
        await others_ended()


@asynccontextmanager
async def dialed(address: Address) -> AsyncIterator[DialedLine]:
    line = await asyncio.wait_for(dial(address), SOON_S)
    try:
        yield line
    finally:
        line.writer.close()
        await closed(line.writer)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A server's own certificate."""
    path = tmp_path / "own.pem"
    path.write_bytes(make_certificate())
    return path


def refused(address: Callable[[int], Address], context: ssl.SSLContext | None) -> str:
    """Why nothing is said to who answers there; checks that nothing was."""
    reasons: list[str] = []

    async def main() -> None:
        async with listening(context) as (listener, port):
            with pytest.raises(UntrustedServerError) as caught:
                await asyncio.wait_for(dial(address(port)), SOON_S)
            reasons.append(str(caught.value))
            if context is None:
                return  # it heard the beginning of a handshake
            assert listener.heard == []

    asyncio.run(main())
    return reasons[0]


async def test_server_with_the_fingerprint_is_spoken_to_over_tls_1_3(own: Path) -> None:
    certificate = read_certificate(own)
    async with listening(server_context(own, own)) as (listener, port):
        address = Address("127.0.0.1", port, True, fingerprint_of(certificate))
        async with dialed(address) as line:
            assert line.binding == binding_of(certificate)
            assert line.writer.get_extra_info("ssl_object").version() == "TLSv1.3"
            line.writer.write(b"hello")
            assert await line.reader.readexactly(5) == b"heard"
        await listener.is_closed.wait()
        assert b"".join(listener.heard) == b"hello"


def test_server_with_another_certificate_is_not_spoken_to(own: Path) -> None:
    other = "A" * 24
    reason = refused(lambda port: Address("127.0.0.1", port, True, other), server_context(own, own))
    assert reason.startswith(
        f"fingerprint: expected {other}, got {fingerprint_of(read_certificate(own))}; somebody may be"
    )


@pytest.mark.parametrize(("begins", "ends"), [(-2 * YEAR, -YEAR), (YEAR, 2 * YEAR)])
def test_certificate_with_the_fingerprint_that_is_not_valid_today_is_refused(
    tmp_path: Path, begins: timedelta, ends: timedelta
) -> None:
    path = write_pem(tmp_path / "old.pem", made := issued("localhost", begins=begins, ends=ends))
    fingerprint = fingerprint_of(made[0].public_bytes(Encoding.DER))
    reason = refused(lambda port: Address("127.0.0.1", port, True, fingerprint), server_context(path, path))
    assert "expected one that is valid today" in reason


@pytest.mark.parametrize("fingerprint", ["A" * 24, ""])
async def test_server_without_tls_is_not_spoken_to(fingerprint: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"fL and so on, without encryption")
        writer.close()
        await closed(writer)

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(UntrustedServerError, match=r"expected TLS 1\.3, the server answers otherwise"):
            await dial(Address("127.0.0.1", port, True, fingerprint))


def test_older_tls_is_refused_by_the_client(own: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(own)
    fingerprint = fingerprint_of(read_certificate(own))

    def shake_hands(listener: socket.socket) -> None:
        raw, _ = listener.accept()
        with raw, pytest.raises(ssl.SSLError):
            context.wrap_socket(raw, server_side=True)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as executor:
        shaking = executor.submit(shake_hands, listener)
        address = Address("127.0.0.1", listener.getsockname()[1], True, fingerprint)
        with pytest.raises(UntrustedServerError, match=r"^expected TLS 1\.3, the server answers otherwise"):
            asyncio.run(dial(address))
        shaking.result(SOON_S)


async def test_older_tls_is_refused_by_the_server(own: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with listening(server_context(own, own)) as (listener, port):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", port, ssl=context)
        assert listener.heard == []


def test_without_a_fingerprint_authorities_vouch_for_the_certificate_and_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = issued("an authority")
    monkeypatch.setenv("SSL_CERT_FILE", str(write_pem(tmp_path / "authority.pem", authority)))
    path = write_pem(tmp_path / "server.pem", issued("localhost", issuer=authority))

    async def main() -> None:
        async with listening(server_context(path, path)) as (_, port), dialed(Address("localhost", port, True)) as line:
            assert line.binding == binding_of(read_certificate(path))

    asyncio.run(main())
    reason = refused(lambda port: Address("127.0.0.1", port, True), server_context(path, path))
    assert "IP address mismatch" in reason
    late = write_pem(tmp_path / "late.pem", issued("localhost", issuer=authority, begins=-2 * YEAR, ends=-YEAR))
    reason = refused(lambda port: Address("localhost", port, True), server_context(late, late))
    assert "certificate has expired" in reason


def test_without_a_fingerprint_a_certificate_of_its_own_is_refused_with_the_remedy(own: Path) -> None:
    reason = refused(lambda port: Address("localhost", port, True), server_context(own, own))
    assert reason.startswith("the server's certificate: self-signed certificate")
    assert "copy the line that the server prints, with its fingerprint" in reason


async def test_plain_address_is_spoken_to_plainly() -> None:
    async with listening(None) as (listener, port), dialed(Address("127.0.0.1", port)) as line:
        assert line.binding == b""
        line.writer.write(b"hello")
        assert await line.reader.readexactly(5) == b"heard"
        assert listener.heard == [b"hello"]


async def test_line_that_breaks_in_the_handshake_is_no_verdict_on_the_server() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        await closed(writer)

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        with pytest.raises(ConnectionError, match=r"the line broke while encryption was agreed on"):
            await dial(Address("127.0.0.1", server.sockets[0].getsockname()[1], True, "A" * 24))


def test_client_takes_nothing_below_tls_1_3() -> None:
    for address in (Address("far", 1, True), Address("far", 1, True, "A" * 24)):
        assert client_context(address).minimum_version is ssl.TLSVersion.TLSv1_3
    assert client_context(Address("far", 1, True)).verify_mode is ssl.CERT_REQUIRED
    assert client_context(Address("far", 1, True)).check_hostname
