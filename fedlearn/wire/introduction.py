"""How two seats of a crew that talk without the server prove to each other who they are.

Each signs the nonces of both, both keys, the number of the line, its own side of it, and the called one's certificate
as the caller sees it: so nobody in the middle can pass a signature on, and none serves twice or for a conversation with
a server.

Source: Ed25519, RFC 8032; the binding is that of `proof.py`.
"""

from typing import final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fedlearn.wire.errors import RemoteProtocolError
from fedlearn.wire.messages import PROTOCOL_VERSION, Challenge, Hello, Message, Signature
from fedlearn.wire.proof import NONCE_BYTES, Identity, has_small_order
from fedlearn.wire.versions import version_mismatch

_DOMAIN = b"fedlearn direct line, protocol 7\0"
_CALLER, _CALLED = b"\0", b"\1"


class Ends(msgspec.Struct, frozen=True):
    """A line between two seats, as the server named them."""

    number: int
    before_key: bytes
    next_key: bytes
    binding: bytes
    """SHA-256 of the certificate of the next seat, empty without TLS."""

    def covered(self, hello: Hello, challenge: Challenge) -> bytes:
        """The bytes that both ends sign; all fields but the last have a fixed length."""
        number = self.number.to_bytes(8, "little")
        return number + challenge.nonce + hello.nonce + self.before_key + self.next_key + self.binding


@final
class Caller:
    """The calling end, which is the previous seat."""

    def __init__(self, identity: Identity, ends: Ends, *, name: str, nonce: bytes) -> None:
        self._identity, self._ends = identity, ends
        self._challenge: Challenge | None = None
        self.hello = Hello(PROTOCOL_VERSION, name, 1, ends.before_key, nonce)

    def received(self, message: Message) -> Signature | None:
        """The next message to send, after which activations may follow; None: nothing yet.

        Raises:
            RemoteProtocolError: whoever was called is not the next seat.
        """
        if isinstance(message, Challenge):
            self._challenge = message
        if not isinstance(message, Signature) or self._challenge is None:
            return None
        covered = self._ends.covered(self.hello, self._challenge)
        _check(message, self._ends.next_key, _CALLED + covered)
        return Signature(self._identity.sign(_DOMAIN + _CALLER + covered))


@final
class Called:
    """The called end, which is the next seat."""

    def __init__(self, identity: Identity, ends: Ends, *, nonce: bytes) -> None:
        self._identity, self._ends = identity, ends
        self._challenge = Challenge(nonce, needs_token=False)
        self._hello: Hello | None = None

    def received(self, message: Message) -> list[Message]:
        """The messages that answer a Hello; none for the signature that follows, if it is right.

        Raises:
            RemoteProtocolError: the caller is not the seat before, or speaks another version.
        """
        if isinstance(message, Hello):
            if message.protocol_version != PROTOCOL_VERSION:
                raise RemoteProtocolError(version_mismatch(message.protocol_version))
            if message.public_key != self._ends.before_key or len(message.nonce) != NONCE_BYTES:
                raise RemoteProtocolError(
                    "neighbour: expected the seat that the server named, got another; send activations to the server"
                )
            self._hello = message
            covered = self._ends.covered(message, self._challenge)
            return [self._challenge, Signature(self._identity.sign(_DOMAIN + _CALLED + covered))]
        if isinstance(message, Signature):
            assert self._hello is not None, "signed before Hello"
            _check(message, self._ends.before_key, _CALLER + self._ends.covered(self._hello, self._challenge))
        return []


def _check(message: Signature, public_key: bytes, covered: bytes) -> None:
    try:
        if has_small_order(public_key):
            raise ValueError("a key for which anybody can sign")
        Ed25519PublicKey.from_public_bytes(public_key).verify(message.signature, _DOMAIN + covered)
    except (InvalidSignature, ValueError) as error:
        raise RemoteProtocolError(
            "neighbour: expected this line signed by the seat that the server named, got another signature; somebody "
            "may be intercepting the connection"
        ) from error
