"""A volunteer's identity, and the words between Hello and Welcome, where a test is about something else."""

from functools import cache
from hashlib import sha256

from fedlearn.wire.messages import PROTOCOL_VERSION, Challenge, Hello, Proof
from fedlearn.wire.proof import NONCE_BYTES, Credentials, Identity, prove

ADA = Credentials(Identity.of_seed(b"a" * 32))
BOB = Credentials(Identity.of_seed(b"b" * 32))
TOKEN = b"open sesame"
NONCE = bytes(range(NONCE_BYTES))
CHALLENGE = Challenge(b"c" * NONCE_BYTES, needs_token=False)


@cache
def named(name: str) -> Credentials:
    """The same for the same name."""
    return Credentials(Identity.of_seed(sha256(name.encode()).digest()))


def hello_of(credentials: Credentials = ADA, name: str = "Ada", threads: int = 1) -> Hello:
    return Hello(PROTOCOL_VERSION, name, threads, credentials.identity.public_key, NONCE)


def proof_of(
    credentials: Credentials = ADA,
    hello: Hello | None = None,
    challenge: Challenge = CHALLENGE,
    binding: bytes = b"",
) -> Proof:
    return prove(credentials, hello or hello_of(credentials), challenge, binding)
