"""Tunnels through the proxy of HTTPS_PROXY, as office networks need, unless NO_PROXY lists the server.

python-socks takes what one read gives for the proxy's whole answer: it loses what the server sends in the same packet,
and hands on the rest of an answer that comes in two.

Source: CONNECT of RFC 9110, section 9.3.6.
"""

import asyncio
import base64
import socket
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from fedlearn.net.address import Address, is_loopback
from fedlearn.net.silence import why_silent

MAX_ANSWER_BYTES = 16 * 1024
_END = b"\r\n\r\n"


def proxy_for(address: Address) -> SplitResult | None:
    """The proxy between here and the server, by the environment's variables; None where there is none.

    Raises:
        ValueError: HTTPS_PROXY is not understood.
    """
    text = getproxies_environment().get("https", "")
    if not text or is_loopback(address.host) or proxy_bypass(f"{address.host}:{address.port}"):
        return None
    proxy = urlsplit(text if "://" in text else f"http://{text}")
    try:
        is_complete = proxy.scheme == "http" and bool(proxy.hostname) and proxy.port is not None
    except ValueError:
        is_complete = False
    if not is_complete:
        raise ValueError("HTTPS_PROXY: expected http://HOST:PORT or http://USER:PASSWORD@HOST:PORT, got something else")
    return proxy


async def open_tunnel(proxy: SplitResult, address: Address) -> socket.socket:
    """A connected socket, with the server at its other end.

    Raises:
        OSError: the proxy does not answer, or refuses.
    """
    loop = asyncio.get_running_loop()
    tunnel = await _call(proxy)
    try:
        await loop.sock_sendall(tunnel, _request(proxy, address))
        answer = b""
        # It is read byte by byte, since what follows the answer comes from the server.
        while not answer.endswith(_END):
            byte = await loop.sock_recv(tunnel, 1)
            if not byte or len(answer) >= MAX_ANSWER_BYTES:
                raise ConnectionError(f"proxy {proxy.hostname}:{proxy.port}: expected an answer to CONNECT, got none")
            answer += byte
        _check(answer, proxy)
    except BaseException:
        tunnel.close()
        raise
    return tunnel


async def _call(proxy: SplitResult) -> socket.socket:
    """A socket that is connected to the proxy.

    Raises:
        ConnectionError: it does not answer.
    """
    loop, place = asyncio.get_running_loop(), f"{proxy.hostname}:{proxy.port}"
    try:
        found = await loop.getaddrinfo(proxy.hostname, proxy.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, where = found[0]
        calling = socket.socket(family, kind, protocol)
        try:
            calling.setblocking(False)
            await loop.sock_connect(calling, where)
        except BaseException:
            calling.close()
            raise
    except OSError as error:
        raise ConnectionError(f"the proxy of HTTPS_PROXY: {why_silent(error, place)}") from error
    return calling


def _request(proxy: SplitResult, address: Address) -> bytes:
    lines = [f"CONNECT {address.place} HTTP/1.1", f"Host: {address.place}"]
    if proxy.username is not None:
        user = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(user.encode()).decode()}")
    return "\r\n".join(lines).encode() + _END


def _check(answer: bytes, proxy: SplitResult) -> None:
    status = answer.partition(b"\r\n")[0].decode("latin-1")
    words = status.split(None, 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].startswith("2"):
        remedy = (
            "put USER:PASSWORD@ into HTTPS_PROXY"
            if words[1:2] == ["407"]
            else "ask for the server's port to be let out"
        )
        raise ConnectionError(f"proxy {proxy.hostname}:{proxy.port}: expected 200, got {status[:200]!r}; {remedy}")
