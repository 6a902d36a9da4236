"""The address of a server and the protection of the connection to it: the text that a server prints and a volunteer
pastes.

`fedlearn://HOST:PORT/RUN#FINGERPRINT` is TLS with the very certificate that has this fingerprint; without a fingerprint
one of the system's authorities must vouch for the certificate. Only `fedlearn+plain://`, and HOST:PORT on loopback, are
without TLS; no other address is ever dialled without it.
"""

import base64
import binascii
import ipaddress
import re
from hashlib import sha256
from urllib.parse import urlsplit

import msgspec

DEFAULT_PORT = 55551
TLS_SCHEME = "fedlearn"
PLAIN_SCHEME = "fedlearn+plain"

FINGERPRINT_BYTES = 18
"""Bytes of a certificate's SHA-256 that a server prints: 24 characters."""

LEAST_FINGERPRINT_BYTES = 16
"""Least number of these bytes that a client accepts: with 128 bits nobody makes another certificate with the same
beginning."""

ANY_ADDRESS = ("0.0.0.0", "::", "")
"""Hosts that stand for every address of the machine, loopback among them."""


class Address(msgspec.Struct, frozen=True):
    """A server, and the protection of the connection to it; `str` gives the text that `parse_address` reads."""

    host: str
    port: int
    has_tls: bool = False
    fingerprint: str = ""
    """Beginning of the SHA-256 of the server's certificate, in base64; empty where authorities vouch for it."""
    run: str = ""
    """The name of the wanted run; empty: any."""

    def __str__(self) -> str:
        if not self.has_tls and not self.run and is_loopback(self.host):
            return self.place
        path = f"/{self.run}" if self.run else ""
        fragment = f"#{self.fingerprint}" if self.fingerprint else ""
        return f"{TLS_SCHEME if self.has_tls else PLAIN_SCHEME}://{self.place}{path}{fragment}"

    @property
    def place(self) -> str:
        """The host and the port alone."""
        return f"{_bracketed(self.host)}:{self.port}"


def parse_address(text: str) -> Address:
    """The address that a text names.

    Raises:
        ValueError: the text is none; the message shows the form.
    """
    if "://" not in text:
        host, colon, port = text.rpartition(":")
        host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not colon or not _is_host(host) or not port.isdecimal() or not 0 < int(port) < 65536:
            raise _malformed(text)
        return Address(host, int(port), has_tls=not is_loopback(host))
    try:
        parts = urlsplit(text)
        host, port_number = parts.hostname or "", DEFAULT_PORT if parts.port is None else parts.port
    except ValueError:
        raise _malformed(text) from None
    if parts.scheme not in (TLS_SCHEME, PLAIN_SCHEME) or not _is_host(host) or port_number == 0:
        raise _malformed(text)
    if parts.username is not None or parts.query:
        raise _malformed(text)
    if parts.fragment and parts.scheme == PLAIN_SCHEME:
        raise ValueError(
            f"server: expected no fingerprint with {PLAIN_SCHEME}://, which has no certificate, got {text!r}; "
            "copy the line that the server prints"
        )
    if parts.fragment:
        _check_fingerprint(parts.fragment)
    return Address(host, port_number, parts.scheme == TLS_SCHEME, parts.fragment, parts.path.strip("/"))


def is_loopback(host: str) -> bool:
    """True for this machine alone: a loopback number, or the name localhost, whatever a resolver says."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_host(text: str) -> bool:
    """Whether it is a name, or a number of version 4 or 6."""
    if ":" not in text:
        return re.fullmatch(r"[\w.-]+", text) is not None
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def fingerprint_of(certificate: bytes) -> str:
    """The fingerprint, as addresses show it, of a certificate in DER."""
    return _encoded(sha256(certificate).digest()[:FINGERPRINT_BYTES])


def has_fingerprint(certificate: bytes, fingerprint: str) -> bool:
    """True where a certificate, in DER, has this fingerprint, which may be of any length."""
    return _encoded(sha256(certificate).digest()).startswith(fingerprint)


def _check_fingerprint(text: str) -> None:
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        decoded = b""
    if not LEAST_FINGERPRINT_BYTES <= len(decoded) <= sha256().digest_size:
        raise ValueError(
            f"fingerprint: expected {FINGERPRINT_BYTES * 8 // 6} letters, digits, - and _, got {text!r}; "
            "copy the whole line that the server prints"
        )


def _encoded(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _malformed(text: str) -> ValueError:
    return ValueError(
        f"server: expected {TLS_SCHEME}://HOST:PORT/RUN#FINGERPRINT as the server prints it, or HOST:PORT, e.g. "
        f"127.0.0.1:{DEFAULT_PORT}, got {text!r}"
    )
