"""Through a small proxy on loopback that does what a test says."""

import asyncio
import base64
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import final

import pytest

from fedlearn.net import proxy as module
from fedlearn.net.address import Address, fingerprint_of
from fedlearn.net.dialing import dial
from fedlearn.net.proxy import proxy_for
from fedlearn.net.tls import make_certificate, read_certificate, server_context
from tests.net.peers import SOON_S, closed, others_ended

FAR = Address("far.example", 443, True, "A" * 24)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


@final
class Proxy:
    """Answers CONNECT with a line, and carries bytes to `port` if there is one, whoever was asked for."""

    def __init__(self, port: int, answer: bytes) -> None:
        self.requests: list[bytes] = []
        self._port = port
        self._answer = answer

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self._answer)
        if self._port:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
            await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer))
        writer.close()
        await closed(writer)


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1000):
            writer.write(data)
    except OSError:
        pass
    writer.close()
    await closed(writer)


@asynccontextmanager
async def proxied(
    answer: bytes, monkeypatch: pytest.MonkeyPatch, *, port: int = 0, user: str = ""
) -> AsyncIterator[Proxy]:
    """A proxy that the environment names."""
    proxy = Proxy(port, answer)
    async with await asyncio.start_server(proxy.accept, "127.0.0.1", 0) as server:
        where = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("HTTPS_PROXY", f"http://{user}127.0.0.1:{where}")
        yield proxy
        await others_ended()


async def test_tls_goes_through_a_proxy_to_the_server_that_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own.pem"
    path.write_bytes(make_certificate())

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(5))
        writer.close()
        await closed(writer)

    async with await asyncio.start_server(echo, "127.0.0.1", 0, ssl=server_context(path, path)) as server:
        port = server.sockets[0].getsockname()[1]
        answer = b"HTTP/1.1 200 Connection established\r\nVia: office\r\n\r\n"
        async with proxied(answer, monkeypatch, port=port, user="Ada:p%40ss@") as proxy:
            fingerprint = fingerprint_of(read_certificate(path))
            line = await asyncio.wait_for(dial(Address("far.example", 443, True, fingerprint)), SOON_S)
            line.writer.write(b"hello")
            assert await line.reader.readexactly(5) == b"hello"
            line.writer.close()
            await closed(line.writer)
        (request,) = proxy.requests
        head, *fields = request.decode().split("\r\n")
        assert head == "CONNECT far.example:443 HTTP/1.1"
        assert fields[0] == "Host: far.example:443"
        assert fields[1] == f"Proxy-Authorization: Basic {base64.b64encode(b'Ada:p@ss').decode()}"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "expected 200, got 'HTTP/1.1 407 .*put USER:PASSWORD@"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "expected 200, got 'HTTP/1.1 403 Forbidden'; ask for the server's port"),
        (b"SSH-2.0 200 what\r\n\r\n", "expected 200, got 'SSH-2.0 200 what'"),
        (b"HTTP/1.1 200 OK\r\n", "expected an answer to CONNECT, got none"),
        (b"x" * 20_000, "expected an answer to CONNECT, got none"),
    ],
)
async def test_proxy_that_refuses_is_told_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, reason: str
) -> None:
    async with proxied(answer, monkeypatch):
        with pytest.raises(ConnectionError, match=reason):
            await asyncio.wait_for(dial(FAR), SOON_S)


def test_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    monkeypatch.setenv("HTTPS_PROXY", f"http://Ada:secret@127.0.0.1:{port}")
    reason = f"^the proxy of HTTPS_PROXY: nothing listens at 127.0.0.1:{port}$"
    with pytest.raises(ConnectionError, match=reason):
        asyncio.run(dial(FAR))


@pytest.mark.parametrize(
    ("variables", "host", "expected"),
    [
        ({}, "far.example", None),
        ({"HTTPS_PROXY": "http://office:3128"}, "far.example", "office"),
        ({"https_proxy": "office:3128"}, "far.example", "office"),
        ({"HTTPS_PROXY": "http://office:3128", "NO_PROXY": "example"}, "far.example", None),
        ({"HTTPS_PROXY": "http://office:3128", "no_proxy": "*"}, "far.example", None),
        ({"HTTPS_PROXY": "http://office:3128"}, "127.0.0.1", None),
        ({"HTTP_PROXY": "http://office:3128"}, "far.example", None),
    ],
)
def test_environment_says_which_servers_are_behind_a_proxy(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], host: str, expected: str | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    proxy = proxy_for(Address(host, 443, True))
    assert (None if proxy is None else proxy.hostname) == expected


@pytest.mark.parametrize("text", ["socks5://office:1080", "https://office:1", "http://office", "http://office:x"])
def test_proxy_that_is_not_understood_is_told_without_its_password(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", text.replace("//", "//Ada:secret@"))
    with pytest.raises(ValueError, match="HTTPS_PROXY: expected http://HOST:PORT or ") as caught:
        proxy_for(FAR)
    assert "secret" not in str(caught.value)


async def test_bytes_behind_the_answer_are_left_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxied(b"HTTP/1.1 201 Made\r\n\r\nfirst words", monkeypatch):
        found = proxy_for(FAR)
        assert found is not None
        tunnel = await module.open_tunnel(found, FAR)
        reader, writer = await asyncio.open_connection(sock=tunnel)
        assert await reader.readexactly(11) == b"first words"
        writer.close()
        await closed(writer)
