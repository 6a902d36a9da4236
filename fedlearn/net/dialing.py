"""A volunteer's connection to its server: direct or through a proxy, with TLS as the address says."""

import asyncio
import ssl
from typing import NamedTuple

from fedlearn.net.address import Address
from fedlearn.net.proxy import open_tunnel, proxy_for
from fedlearn.net.tcp import READ_LIMIT_BYTES
from fedlearn.net.tls import (
    HANDSHAKE_S,
    SHUTDOWN_S,
    UntrustedServerError,
    binding_of,
    check_pinned,
    client_context,
    refusal_of,
    unjudged_context,
)


class DialedLine(NamedTuple):
    """An open line to a server that may be trusted as far as its address says."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    binding: bytes
    """SHA-256 of the server's certificate, which proofs cover; empty without TLS."""


async def dial(address: Address) -> DialedLine:
    """Connects, and checks that this is the server that the address means; nothing of the protocol is said yet.

    Raises:
        OSError: nobody answers there.
        UntrustedServerError: somebody answers who cannot be trusted to be the server.
    """
    proxy = proxy_for(address)
    sock = await open_tunnel(proxy, address) if proxy is not None else None
    host, port = (address.host, address.port) if sock is None else (None, None)
    if not address.has_tls:
        return DialedLine(*await asyncio.open_connection(host, port, sock=sock, limit=READ_LIMIT_BYTES), binding=b"")
    try:
        reader, writer = await asyncio.open_connection(
            host,
            port,
            sock=sock,
            limit=READ_LIMIT_BYTES,
            ssl=client_context(address),
            server_hostname=address.host,
            ssl_handshake_timeout=HANDSHAKE_S,
            ssl_shutdown_timeout=SHUTDOWN_S,
        )
    except ssl.SSLError as error:
        raise refusal_of(error) or _broken(address) from error
    except ConnectionError as error:
        if isinstance(error, ConnectionRefusedError):
            raise
        raise _broken(address) from error
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    if address.fingerprint:
        try:
            check_pinned(address, certificate)
        except UntrustedServerError:
            writer.transport.abort()
            raise
    return DialedLine(reader, writer, binding_of(certificate))


async def dial_directly(host: str, port: int, *, has_tls: bool) -> DialedLine:
    """Connects to a volunteer; a signature over the binding must show that it is the right one.

    Raises:
        OSError: nobody answers there, or not with TLS.
    """
    if not has_tls:
        return DialedLine(*await asyncio.open_connection(host, port, limit=READ_LIMIT_BYTES), binding=b"")
    reader, writer = await asyncio.open_connection(
        host,
        port,
        limit=READ_LIMIT_BYTES,
        ssl=unjudged_context(),
        server_hostname=host,
        ssl_handshake_timeout=HANDSHAKE_S,
        ssl_shutdown_timeout=SHUTDOWN_S,
    )
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return DialedLine(reader, writer, binding_of(certificate))


def _broken(address: Address) -> ConnectionError:
    return ConnectionError(
        f"{address.host}:{address.port}: the line broke while encryption was agreed on; does a server with TLS answer?"
    )
