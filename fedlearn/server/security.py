"""The security of a server: encryption, the admission rules, and the line that it prints for volunteers."""

import asyncio
import re
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path

import msgspec

from fedlearn.config import ConfigError, ServerSettings
from fedlearn.coordination.people.authentication import AuthenticationRules
from fedlearn.net.address import ANY_ADDRESS, Address, fingerprint_of, is_loopback
from fedlearn.net.tcp import READ_LIMIT_BYTES
from fedlearn.net.tls import binding_of, make_certificate, read_certificate, server_context
from fedlearn.net.tls_listener import Accepted, TlsListener
from fedlearn.storage.credentials import exposure, keep_secret, load_identity, read_allowed, read_token, token_exposure
from fedlearn.storage.durable import StorageError

CERTIFICATE_FILE = "certificate.pem"
"""The server's own certificate with its key, beside the run folders."""

_FAR_AWAY = ("192.0.2.1", 9)
"""An address that RFC 5737 gives to nobody, beyond every router."""


class ServerSecurity(msgspec.Struct, frozen=True, eq=False):
    """The protection of one server; by default everybody may join, without encryption."""

    settings: ServerSettings = ServerSettings()
    rules: AuthenticationRules = AuthenticationRules()
    context: ssl.SSLContext | None = None
    certificate: bytes = b""
    """The certificate in DER; empty without TLS."""
    exposures: tuple[str, ...] = ()
    """Warnings of files with secrets that others on this machine can read."""

    @property
    def binding(self) -> bytes:
        """SHA-256 of the certificate, which volunteers' proofs cover; empty without TLS."""
        return binding_of(self.certificate) if self.certificate else b""

    @property
    def trust(self) -> str:
        """The reason why all volunteers are the server's owner's; empty: anybody may join."""
        if is_loopback(self.settings.host):
            return "only this machine reaches the server"
        if self.rules.token:
            return "whoever joins knows the token"
        return "whoever joins is on the list" if self.rules.allowed is not None else ""

    async def listen(self, accepted: Accepted, listening: socket.socket) -> TlsListener | asyncio.Server:
        """Accepts connections on a socket, as `asyncio.start_server` does, with TLS where it is on."""
        if self.context is None:
            return await asyncio.start_server(accepted, sock=listening, limit=READ_LIMIT_BYTES)
        return TlsListener(accepted, listening, self.context, limit=READ_LIMIT_BYTES)

    @property
    def notices(self) -> list[str]:
        """Sentences that the owner should read before others join."""
        if is_loopback(self.settings.host) or self.context is not None:
            return list(self.exposures)
        return [
            *self.exposures,
            "tls is off: whoever is on the way reads the data and the weights, and may change them or pose as a "
            "volunteer or as this server; leave out --tls off unless something else encrypts the line",
        ]

    def public_address(self, port: int, *, run: str) -> Address:
        """The address that volunteers are told."""
        settings = self.settings
        host = settings.public_host or (own_address() if settings.host in ANY_ADDRESS else settings.host)
        # For a certificate that was given, authorities vouch; and it will be renewed, with another fingerprint.
        fingerprint = "" if settings.tls_cert or self.context is None else fingerprint_of(self.certificate)
        is_private = self.context is None and is_loopback(host)
        return Address(host, port, self.context is not None, fingerprint, "" if is_private else run)

    def local_address(self, port: int) -> Address:
        """The address for the server's own volunteers."""
        host = "127.0.0.1" if self.settings.host in ANY_ADDRESS else self.settings.host
        if self.context is None:
            return Address(host, port)
        return Address(host, port, has_tls=True, fingerprint=fingerprint_of(self.certificate))


def open_security(settings: ServerSettings, root: Path, environ: Mapping[str, str]) -> ServerSecurity:
    """The security that the settings describe; `root` is the folder of the runs and of the server's own certificate.

    Raises:
        ConfigError: a file cannot be used.
        StorageError: no certificate can be made.
    """
    if settings.public_host and not re.fullmatch(r"[\w.-]+|[0-9a-fA-F:.]+", settings.public_host):
        raise ConfigError(
            "public_host: expected a name or an address without a port, such as train.example.org, got "
            f"{settings.public_host!r}"
        )
    rules = AuthenticationRules(
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
    exposed = token_exposure(settings.token_file)
    is_wanted = settings.tls == "on" or bool(settings.tls_cert) or not is_loopback(settings.host)
    if settings.tls == "off" or not is_wanted:
        return ServerSecurity(settings, rules, exposures=_told(exposed))
    certificate = Path(settings.tls_cert) if settings.tls_cert else _own_certificate(root)
    key = Path(settings.tls_key) if settings.tls_key else certificate
    try:
        der = read_certificate(certificate)
        context = server_context(certificate, key)
    except ValueError as error:
        remedy = "" if settings.tls_cert else f"; or move {certificate} away: the next one gives volunteers a new line"
        raise ConfigError(f"tls: {error}{remedy}") from error
    of_key = exposure(key, "tls_key", "pose as this server")
    return ServerSecurity(settings, rules, context, der, _told(exposed, of_key))


def _told(*warnings: str) -> tuple[str, ...]:
    return tuple(warning for warning in warnings if warning)


def with_local(security: ServerSecurity, identity: Path) -> ServerSecurity:
    """The security of a server whose own volunteers have the identity in this file, which is made where there is
    none."""
    try:
        local = load_identity(identity).public_key.hex()
    except OSError as error:
        raise StorageError(f"{identity}: expected a file that can be made: {error.strerror}") from error
    exposures = _told(*security.exposures, exposure(identity, "identity", "pose as this server's own volunteers"))
    rules = msgspec.structs.replace(security.rules, local=local)
    return msgspec.structs.replace(security, rules=rules, exposures=exposures)


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
    """The address that this machine has towards others, by its routes; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_FAR_AWAY)
        except OSError:
            return "HOST"
        return str(probe.getsockname()[0])
