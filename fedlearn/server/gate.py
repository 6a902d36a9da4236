"""What stands between a server and strangers: encryption, whom it lets in, and the line that it prints for them."""

import asyncio
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path

import msgspec

from fedlearn.config import ConfigError, ServerSettings
from fedlearn.coordination.admission import AdmissionRules
from fedlearn.net.address import ANY_ADDRESS, Address, fingerprint_of, is_loopback
from fedlearn.net.tcp import READ_LIMIT_BYTES
from fedlearn.net.tls import binding_of, make_certificate, read_certificate, server_context
from fedlearn.net.tls_listener import Accepted, TlsListener
from fedlearn.storage.credentials import keep_secret, load_identity, read_allowed, read_token
from fedlearn.storage.durable import StorageError

CERTIFICATE_FILE = "certificate.pem"
"""Beside the run folders: the certificate of the server's own, with its key."""

_FAR_AWAY = ("192.0.2.1", 9)
"""RFC 5737: nobody's address, beyond every router."""


class Gate(msgspec.Struct, frozen=True, eq=False):
    """One server's; as it is by default everybody may join, without encryption."""

    settings: ServerSettings = ServerSettings()
    rules: AdmissionRules = AdmissionRules()
    context: ssl.SSLContext | None = None
    certificate: bytes = b""
    """In DER; empty without TLS."""

    @property
    def binding(self) -> bytes:
        """What proofs name of this server's lines."""
        return binding_of(self.certificate) if self.certificate else b""

    async def listen(self, accepted: Accepted, listening: socket.socket) -> TlsListener | asyncio.Server:
        """Accepts connections there, as `asyncio.start_server` does, with TLS where it is on."""
        if self.context is None:
            return await asyncio.start_server(accepted, sock=listening, limit=READ_LIMIT_BYTES)
        return TlsListener(accepted, listening, self.context, limit=READ_LIMIT_BYTES)

    @property
    def notices(self) -> list[str]:
        """What the owner should know before strangers come."""
        if is_loopback(self.settings.host):
            return [
                "only this machine reaches that address; for others listen to all networks with --host 0.0.0.0, which "
                "turns encryption on and prints the line for them"
            ]
        if self.context is not None:
            return []
        return [
            "tls is off: whoever is on the way reads the data and the weights, and may change them or pose as a "
            "volunteer or as this server; leave out --tls off unless something else encrypts the line"
        ]

    def public_address(self, port: int, *, run: str) -> Address:
        """What volunteers are told."""
        settings = self.settings
        host = settings.public_host or (own_address() if settings.host in ANY_ADDRESS else settings.host)
        # Authorities vouch for a certificate that was given, which is renewed now and then.
        fingerprint = "" if settings.tls_cert or self.context is None else fingerprint_of(self.certificate)
        is_private = self.context is None and is_loopback(host)
        return Address(host, port, self.context is not None, fingerprint, "" if is_private else run)

    def local_address(self, port: int) -> Address:
        """What the server's own volunteers are told."""
        host = "127.0.0.1" if self.settings.host in ANY_ADDRESS else self.settings.host
        if self.context is None:
            return Address(host, port)
        return Address(host, port, has_tls=True, fingerprint=fingerprint_of(self.certificate))


def open_gate(settings: ServerSettings, root: Path, environ: Mapping[str, str]) -> Gate:
    """The gate that the settings describe; `root` is where run folders are, and the server's own certificate.

    Raises ConfigError for files that can't be used, StorageError where none can be made.
    """
    rules = AdmissionRules(
        token=read_token(settings.token_file, environ),
        allowed=read_allowed(settings.allow),
        connections_per_address=settings.connections_per_address,
        connections_per_identity=settings.connections_per_identity,
        joins_per_minute=settings.joins_per_minute,
    )
    if settings.tls_key and not settings.tls_cert:
        raise ConfigError("tls_cert: expected the certificate of tls_key, got none; name its file with --tls-cert")
    if settings.tls == "off" and settings.tls_cert:
        raise ConfigError("tls: expected on with tls_cert, got off; leave one of them out")
    is_wanted = settings.tls == "on" or bool(settings.tls_cert) or not is_loopback(settings.host)
    if settings.tls == "off" or not is_wanted:
        return Gate(settings, rules)
    certificate = Path(settings.tls_cert) if settings.tls_cert else _own_certificate(root)
    key = Path(settings.tls_key) if settings.tls_key else certificate
    try:
        return Gate(settings, rules, server_context(certificate, key), read_certificate(certificate))
    except ValueError as error:
        remedy = "" if settings.tls_cert else f"; or move {certificate} away: the next one gives volunteers a new line"
        raise ConfigError(f"tls: {error}{remedy}") from error


def with_local(gate: Gate, identity: Path) -> Gate:
    """The same for a server whose own volunteers have the identity in this file, which is made if it is not there."""
    try:
        local = load_identity(identity).public_key.hex()
    except OSError as error:
        raise StorageError(f"{identity}: expected a file that can be made: {error.strerror}") from error
    return msgspec.structs.replace(gate, rules=msgspec.structs.replace(gate.rules, local=local))


def _own_certificate(root: Path) -> Path:
    path = root / CERTIFICATE_FILE
    try:
        keep_secret(path, make_certificate)
    except OSError as error:
        raise StorageError(
            f"{path}: expected a file that can be read or made, for the server's certificate: {error.strerror}; "
            "choose another folder with --runs, or a certificate with --tls-cert"
        ) from error
    return path


def own_address() -> str:
    """This machine's address towards others, as its routes have it; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_FAR_AWAY)
        except OSError:
            return "HOST"
        return str(probe.getsockname()[0])
