import msgspec
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fedlearn.wire import proof as module
from fedlearn.wire.messages import Challenge, Hello, Proof
from fedlearn.wire.proof import Credentials, Identity, is_signed, knows_token, prove, transcript
from tests.identities import ADA, BOB, CHALLENGE, TOKEN, hello_of, proof_of

BINDING = b"d" * 32
HELLO = hello_of()
ASKS = msgspec.structs.replace(CHALLENGE, needs_token=True)
INSIDER = msgspec.structs.replace(ADA, token=TOKEN)


def test_identity_is_the_key_pair_of_its_seed() -> None:
    # RFC 8032, 7.1, TEST 1
    seed = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    identity = Identity.of_seed(seed)
    assert identity.public_key.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    assert identity.sign(b"").hex().startswith("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155")


def test_proofs_are_those_of_the_documentation() -> None:
    credentials = Credentials(Identity.of_seed(bytes(range(32))), b"open sesame")
    hello = Hello(5, "Ada", 2, credentials.identity.public_key, b"\x20" * 32)
    proof = prove(credentials, hello, Challenge(b"\x40" * 32, needs_token=True), b"\x60" * 32)
    assert credentials.identity.public_key.hex() == "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
    assert proof.signature.hex(" ").startswith("25 45 4e de 98 64 73 b4 cb 34 36 c7 94 66 73 64")
    assert proof.token_proof.hex(" ").startswith("af 60 10 1a 55 0d ed 69 2e 5c f1 f2 ba de ae aa")


def test_own_signature_of_this_conversation_is_taken() -> None:
    assert is_signed(prove(ADA, HELLO, CHALLENGE, BINDING), HELLO, CHALLENGE, BINDING)


@pytest.mark.parametrize(
    ("hello", "challenge", "binding"),
    [
        (HELLO, msgspec.structs.replace(CHALLENGE, nonce=b"e" * 32), BINDING),
        (msgspec.structs.replace(HELLO, nonce=b"e" * 32), CHALLENGE, BINDING),
        (msgspec.structs.replace(HELLO, public_key=BOB.identity.public_key), CHALLENGE, BINDING),
        (HELLO, CHALLENGE, b"e" * 32),
        (HELLO, CHALLENGE, b""),
        (msgspec.structs.replace(HELLO, public_key=b"e" * 32), CHALLENGE, BINDING),
        (msgspec.structs.replace(HELLO, public_key=b""), CHALLENGE, BINDING),
    ],
    ids=["server's nonce", "client's nonce", "key", "certificate", "no certificate", "no point of the curve", "no key"],
)
def test_proof_of_another_conversation_is_worth_nothing(hello: Hello, challenge: Challenge, binding: bytes) -> None:
    proof = prove(INSIDER, HELLO, msgspec.structs.replace(CHALLENGE, needs_token=True), BINDING)
    asks = msgspec.structs.replace(challenge, needs_token=True)
    assert not is_signed(proof, hello, asks, binding)
    assert not knows_token(proof, TOKEN, hello, asks, binding)


def test_another_key_can_not_sign_for_ada() -> None:
    assert not is_signed(prove(BOB, HELLO, CHALLENGE, BINDING), HELLO, CHALLENGE, BINDING)


def test_signature_of_something_else_by_the_same_key_is_no_proof() -> None:
    covered = CHALLENGE.nonce + HELLO.nonce + HELLO.public_key + BINDING
    assert not is_signed(Proof(ADA.identity.sign(covered)), HELLO, CHALLENGE, BINDING)


def test_token_is_proven_without_being_shown() -> None:
    proof = prove(INSIDER, HELLO, ASKS, BINDING)
    assert knows_token(proof, TOKEN, HELLO, ASKS, BINDING)
    assert not knows_token(proof, TOKEN + b"!", HELLO, ASKS, BINDING)
    assert TOKEN not in proof.token_proof + proof.signature


def test_token_is_not_used_unless_it_is_asked_for() -> None:
    proof = prove(INSIDER, HELLO, CHALLENGE, BINDING)
    assert proof.token_proof == b""
    assert not knows_token(proof, TOKEN, HELLO, CHALLENGE, BINDING)


def test_no_proof_is_that_of_an_empty_token() -> None:
    assert not knows_token(proof_of(), b"", HELLO, ASKS, b"")


@pytest.mark.parametrize("sign", [0x00, 0x80])
def test_key_that_everybody_can_sign_for_is_nobodys_identity(sign: int) -> None:
    n_forged = 0
    for key in module._SMALL_ORDER:
        public_key = key[:-1] + bytes([key[-1] | sign])
        hello = msgspec.structs.replace(HELLO, public_key=public_key)
        for point in module._SMALL_ORDER:
            forged = Proof(point + bytes(32))
            for number in range(8):
                challenge = Challenge(bytes([number]) * 32, needs_token=False)
                assert not is_signed(forged, hello, challenge, BINDING)
                n_forged += would_pass(public_key, forged, hello, challenge)
    assert n_forged > 0, "or these forgeries prove nothing"


def would_pass(public_key: bytes, proof: Proof, hello: Hello, challenge: Challenge) -> bool:
    """Whether the signature alone is right."""
    try:
        key = Ed25519PublicKey.from_public_bytes(public_key)
        key.verify(proof.signature, module._DOMAIN + transcript(hello, challenge, BINDING))
    except (InvalidSignature, ValueError):
        return False
    return True
