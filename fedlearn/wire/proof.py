"""Proofs of a volunteer's identity: a signature, and a code made with the token, over this conversation.

Both cover the server's certificate as the client sees it, so that nobody in the middle with another certificate can
pass a proof on, and a fresh nonce of each side, so that no proof serves twice.

Sources: Ed25519, RFC 8032; HMAC, RFC 2104; the binding is `tls-server-end-point` of RFC 5929, with SHA-256.
"""

import hmac
from hashlib import sha256
from typing import final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fedlearn.es.golden import GOLDEN_STEP
from fedlearn.wire.messages import Challenge, Hello, Proof

NONCE_BYTES = 32
KEY_BYTES = 32
_SMALL_ORDER = frozenset(
    bytes.fromhex(text)
    for text in (
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    )
)
"""Public keys of small order, without their sign bit: anybody can find signatures for them.

Source: libsodium, `ge25519_has_small_order`.
"""

_DOMAIN = b"fedlearn admission, protocol 5\0"
_TOKEN_DOMAIN = b"fedlearn token, protocol 5\0"


@final
class Identity:
    """A volunteer's key pair."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public_key: bytes = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    @classmethod
    def of_seed(cls, seed: bytes) -> "Identity":
        """The key pair of a seed of 32 bytes, which is the secret."""
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    def sign(self, payload: bytes) -> bytes:
        """Signs a payload; the signature has 64 bytes."""
        return self._key.sign(payload)


class Credentials(msgspec.Struct, frozen=True, eq=False):
    """The credentials that a volunteer shows to a server; `token` is empty where it was given none."""

    identity: Identity
    token: bytes = b""


def transcript(hello: Hello, challenge: Challenge, binding: bytes) -> bytes:
    """The bytes that both proofs cover; `binding` is the SHA-256 of the certificate, empty on a line without TLS."""
    # All parts but the last have a fixed length: so no two conversations give the same bytes.
    return challenge.nonce + hello.nonce + hello.public_key + binding


def prove(credentials: Credentials, hello: Hello, challenge: Challenge, binding: bytes) -> Proof:
    """Makes the client's answer to a Challenge; the token itself never travels."""
    covered = transcript(hello, challenge, binding)
    token_proof = _token_proof(credentials.token, covered) if challenge.needs_token else b""
    # `check_core` compared what this machine computes with it when the client began.
    return Proof(credentials.identity.sign(_DOMAIN + covered), token_proof, golden_step=GOLDEN_STEP)


def is_signed(proof: Proof, hello: Hello, challenge: Challenge, binding: bytes) -> bool:
    """Whether the conversation was signed with the private key of the public key in Hello."""
    if has_small_order(hello.public_key):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(hello.public_key).verify(
            proof.signature, _DOMAIN + transcript(hello, challenge, binding)
        )
    except (InvalidSignature, ValueError):
        return False
    return True


def knows_token(proof: Proof, token: bytes, hello: Hello, challenge: Challenge, binding: bytes) -> bool:
    """Whether the proof was made with this token; the comparison takes constant time."""
    return hmac.compare_digest(proof.token_proof, _token_proof(token, transcript(hello, challenge, binding)))


def has_small_order(public_key: bytes) -> bool:
    """Whether anybody can find signatures for a public key."""
    return public_key[:-1] + bytes(byte & 0x7F for byte in public_key[-1:]) in _SMALL_ORDER


def _token_proof(token: bytes, covered: bytes) -> bytes:
    return hmac.digest(token, _TOKEN_DOMAIN + covered, sha256)
