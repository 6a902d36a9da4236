"""The socket on which a volunteer listens for a neighbour in its crew, as its owner allowed."""

import asyncio
import socket
import tempfile
from pathlib import Path

import msgspec

from fedlearn.net.tcp import READ_LIMIT_BYTES
from fedlearn.net.tls import binding_of, make_certificate, read_certificate, server_context
from fedlearn.net.tls_listener import Accepted, TlsListener


class Listening(msgspec.Struct, frozen=True, eq=False):
    """A socket that listens."""

    port: int
    binding: bytes
    """SHA-256 of the certificate that callers see, which signatures cover; empty without TLS."""
    listener: TlsListener | asyncio.Server

    def close(self) -> None:
        """Stops listening; open connections stay."""
        self.listener.close()


class LineAddress(msgspec.Struct, frozen=True):
    """An address of this machine; an empty host is all networks, port 0 any free one."""

    host: str = ""
    port: int = 0

    async def listen(self, accepted: Accepted, *, has_tls: bool) -> Listening:
        """Listens on the address, with a certificate made for this occasion where there is TLS.

        Raises:
            OSError: the system refuses.
        """
        listening = self._socket()
        port = int(listening.getsockname()[1])
        if not has_tls:
            return Listening(port, b"", await asyncio.start_server(accepted, sock=listening, limit=READ_LIMIT_BYTES))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "certificate.pem"
            path.write_bytes(make_certificate())
            context, binding = server_context(path, path), binding_of(read_certificate(path))
        return Listening(port, binding, TlsListener(accepted, listening, context, limit=READ_LIMIT_BYTES))

    def _socket(self) -> socket.socket:
        if not self.host and socket.has_dualstack_ipv6():
            return socket.create_server(("", self.port), family=socket.AF_INET6, dualstack_ipv6=True)
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        return socket.create_server((self.host, self.port), family=family)


def parse_place(text: str) -> LineAddress:
    """The address of a text such as "55552" or "192.0.2.7:55552"; an empty text means any.

    Raises:
        ValueError: the text has another form; the message shows the right one.
    """
    host, _, port = text.rpartition(":")
    if text and not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError(f"--direct: expected a port, or an address of this machine with one, e.g. 55552, got {text!r}")
    return LineAddress(host.strip("[]"), int(port or 0))
