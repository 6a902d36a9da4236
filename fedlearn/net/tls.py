"""TLS 1.3 on the line between server and volunteer: contexts, certificates, and what a client makes of one."""

import ssl
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fedlearn.net.address import Address, fingerprint_of, has_fingerprint

HANDSHAKE_S = 15.0
"""Of a handshake that goes on longer nobody hears: it is no peer yet."""

SHUTDOWN_S = 2.0
"""For the peer's last word of TLS."""

_NO_END = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""RFC 5280: a certificate without an end. Clocks of volunteers may be years off."""


class UntrustedServerError(Exception):
    """Whoever answers is not proven to be the server that was meant: nothing may be said to it."""


def make_certificate() -> bytes:
    """A new key and a certificate signed by itself, without an end, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "fedlearn")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(2000, 1, 1, tzinfo=UTC))
        .not_valid_after(_NO_END)
        .sign(key, SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return secret + certificate.public_bytes(Encoding.PEM)


def read_certificate(path: Path) -> bytes:
    """The first certificate of a PEM file, in DER. Raises ValueError for one that is none or not valid today."""
    try:
        certificate = x509.load_pem_x509_certificates(path.read_bytes())[0]
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: expected a certificate in PEM: {error}; name it with --tls-cert") from error
    der = certificate.public_bytes(Encoding.DER)
    if problem := _date_problem(der):
        raise ValueError(f"{path}: {problem}; renew it")
    return der


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """What a server listens with. Raises ValueError for files that do not belong together."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # a conversation begins anew each time
    load_chain(context, certificate, key)
    return context


def load_chain(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """What callers are shown from now on. Raises ValueError for files that do not belong together."""
    try:
        context.load_cert_chain(certificate, key, password="")  # or it would ask at the terminal
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{key}: expected the key of {certificate}, without a password: {error}; name it with --tls-key"
        ) from error


def client_context(address: Address) -> ssl.SSLContext:
    """What a volunteer calls with: the address's fingerprint stands for authorities and host name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if address.fingerprint:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # `check_pinned` follows, before a word is said
    else:
        context.load_default_certs()
    return context


def check_pinned(address: Address, certificate: bytes) -> None:
    """Whether this is the certificate that the address names, by its fingerprint, and valid today.

    Raises:
        UntrustedServerError: with the reason.
    """
    if not has_fingerprint(certificate, address.fingerprint):
        raise UntrustedServerError(
            f"fingerprint: expected {address.fingerprint}, got {fingerprint_of(certificate)}; somebody may be "
            "intercepting the connection, or the server has a new certificate: ask its owner for the line it prints now"
        )
    if problem := _date_problem(certificate):
        raise UntrustedServerError(f"the server's {problem}; it has expired, or this machine's clock is wrong")


def refusal_of(error: ssl.SSLError) -> UntrustedServerError | None:
    """What a failed handshake says of the server; None where the line just broke."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return UntrustedServerError(
            f"the server's certificate: {error.verify_message}; copy the line that the server prints, with its "
            "fingerprint, or use the host name of its certificate"
        )
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return None
    return UntrustedServerError(
        f"expected TLS 1.3, the server answers otherwise ({error.reason or error}); copy the line that the server "
        "prints: no volunteer goes on with less"
    )


def binding_of(certificate: bytes) -> bytes:
    """What proofs name of the line: SHA-256 of the server's certificate, in DER."""
    return sha256(certificate).digest()


def _date_problem(certificate: bytes) -> str:
    parsed, now = x509.load_der_x509_certificate(certificate), datetime.now(UTC)
    first, last = parsed.not_valid_before_utc, parsed.not_valid_after_utc
    if first <= now <= last:
        return ""
    return f"certificate: expected one that is valid today, got one from {first:%Y-%m-%d} to {last:%Y-%m-%d}"
