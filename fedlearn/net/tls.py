"""TLS 1.3 between server and volunteer: contexts, certificates, and the client's check of a certificate."""

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
"""Seconds that a handshake may take; until it ends the caller is no peer, and nobody hears of it."""

SHUTDOWN_S = 2.0
"""The longest wait for the peer to end TLS."""

_NO_END = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""The date that RFC 5280 gives to a certificate without an end: volunteers' clocks may be years off."""


class UntrustedServerError(Exception):
    """Raised where the answering peer may not be the server that was meant: nothing may be sent to it."""


def make_certificate() -> bytes:
    """A new private key and its self-signed certificate, which never expires, as PEM."""
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
    """The first certificate of a PEM file, in DER.

    Raises:
        ValueError: the file holds none, or it is not valid today.
    """
    try:
        certificate = x509.load_pem_x509_certificates(path.read_bytes())[0]
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: expected a certificate in PEM: {error}; name it with --tls-cert") from error
    der = certificate.public_bytes(Encoding.DER)
    if problem := _date_problem(der):
        raise ValueError(f"{path}: {problem}; renew it")
    return der


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """The TLS context with which a server listens.

    Raises:
        ValueError: the files do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # no TLS session is ever resumed
    load_chain(context, certificate, key)
    return context


def load_chain(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Changes the certificate that callers are shown from now on.

    Raises:
        ValueError: the files do not belong together.
    """
    try:
        context.load_cert_chain(certificate, key, password="")  # without one it would ask at the terminal
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{key}: expected the key of {certificate}, without a password: {error}; name it with --tls-key"
        ) from error


def client_context(address: Address) -> ssl.SSLContext:
    """The TLS context with which a volunteer calls: a fingerprint replaces authorities and host name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if address.fingerprint:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # `check_pinned` follows, before a word is said
    else:
        context.load_default_certs()
    return context


def unjudged_context() -> ssl.SSLContext:
    """A TLS context for calls that accepts any certificate: a signature over its binding must follow."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def check_pinned(address: Address, certificate: bytes) -> None:
    """Checks that this is the certificate whose fingerprint the address names, and that it is valid today.

    Raises:
        UntrustedServerError: it is not; the message gives the reason.
    """
    if not has_fingerprint(certificate, address.fingerprint):
        raise UntrustedServerError(
            f"fingerprint: expected {address.fingerprint}, got {fingerprint_of(certificate)}; somebody may be "
            "intercepting the connection, or the server has a new certificate: ask its owner for the line it prints now"
        )
    if problem := _date_problem(certificate):
        raise UntrustedServerError(f"the server's {problem}; it has expired, or this machine's clock is wrong")


def refusal_of(error: ssl.SSLError) -> UntrustedServerError | None:
    """The reason for distrust that a failed handshake shows; None where the connection just broke."""
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
    """SHA-256 of the server's certificate in DER, which proofs cover."""
    return sha256(certificate).digest()


def _date_problem(certificate: bytes) -> str:
    parsed, now = x509.load_der_x509_certificate(certificate), datetime.now(UTC)
    first, last = parsed.not_valid_before_utc, parsed.not_valid_after_utc
    if first <= now <= last:
        return ""
    return f"certificate: expected one that is valid today, got one from {first:%Y-%m-%d} to {last:%Y-%m-%d}"
