from collections.abc import Callable

import pytest
from msgspec.structs import replace

from fedlearn.wire.errors import RemoteProtocolError
from fedlearn.wire.introduction import Called, Caller, Ends
from fedlearn.wire.messages import Challenge, Goodbye, Hello, Message, Signature
from fedlearn.wire.proof import Credentials, Identity, is_signed, prove
from fedlearn.wire.versions import version_mismatch

ADA, BOB, EVE = (Identity.of_seed(bytes([number]) * 32) for number in (1, 2, 3))
ENDS = Ends(7, ADA.public_key, BOB.public_key, b"certificate of Bob")
NONCE, OTHER_NONCE = bytes(32), bytes([1]) * 32
NOT_SIGNED = "expected this line signed by the seat that the server named"


def talk(caller: Caller, called: Called) -> None:
    """From Hello to the second signature."""
    signature = None
    for answer in called.received(caller.hello):
        signature = caller.received(answer)
    assert signature is not None
    assert called.received(signature) == []


def caller_of(ends: Ends = ENDS, identity: Identity = ADA) -> Caller:
    return Caller(identity, ends, name="Ada", nonce=NONCE)


def called_of(ends: Ends = ENDS, identity: Identity = BOB) -> Called:
    return Called(identity, ends, nonce=OTHER_NONCE)


def test_two_seats_that_the_server_named_to_each_other_talk() -> None:
    talk(caller_of(), called_of())


@pytest.mark.parametrize(
    "change",
    [
        lambda ends: replace(ends, number=8),
        lambda ends: replace(ends, next_key=EVE.public_key),
        lambda ends: replace(ends, binding=b"certificate of somebody in the middle"),
    ],
    ids=["of another line", "with another's key", "with another certificate"],
)
def test_who_is_called_must_be_the_next_seat_on_this_line(change: Callable[[Ends], Ends]) -> None:
    with pytest.raises(RemoteProtocolError, match=NOT_SIGNED):
        talk(caller_of(), called_of(change(ENDS)))


def test_who_has_not_the_key_of_the_next_seat_is_told_nothing() -> None:
    with pytest.raises(RemoteProtocolError, match=NOT_SIGNED):
        talk(caller_of(), called_of(identity=EVE))


def test_a_caller_that_was_not_named_is_turned_away_before_anything_is_signed() -> None:
    stranger = caller_of(replace(ENDS, before_key=EVE.public_key), EVE)
    with pytest.raises(RemoteProtocolError, match="expected the seat that the server named, got another"):
        called_of().received(stranger.hello)


def test_a_caller_needs_the_key_that_it_names() -> None:
    with pytest.raises(RemoteProtocolError, match=NOT_SIGNED):
        talk(caller_of(identity=EVE), called_of())


def test_a_signature_serves_neither_twice_nor_the_other_side() -> None:
    challenge, signed = called_of().received(caller_of().hello)
    assert isinstance(signed, Signature)
    again = Caller(ADA, ENDS, name="Ada", nonce=bytes([2]) * 32)
    assert again.received(challenge) is None
    with pytest.raises(RemoteProtocolError, match=NOT_SIGNED):
        again.received(signed)
    called = called_of()
    called.received(caller_of().hello)
    with pytest.raises(RemoteProtocolError, match=NOT_SIGNED):
        called.received(signed)


def test_a_signature_for_a_server_is_none_for_a_neighbour() -> None:
    hello, challenge = caller_of().hello, Challenge(OTHER_NONCE, False)
    proof = prove(Credentials(ADA), hello, challenge, ENDS.binding)
    called = called_of()
    called.received(hello)
    with pytest.raises(RemoteProtocolError, match=NOT_SIGNED):
        called.received(Signature(proof.signature))
    caller = caller_of()
    caller.received(challenge)
    answers = called_of().received(hello)
    signature = caller.received(answers[1])
    assert signature is not None
    assert not is_signed(replace(proof, signature=signature.signature), hello, challenge, ENDS.binding)


def test_other_versions_and_nonces_are_turned_away() -> None:
    hello = caller_of().hello
    with pytest.raises(RemoteProtocolError, match=version_mismatch(5)):
        called_of().received(replace(hello, protocol_version=5))
    with pytest.raises(RemoteProtocolError, match="expected the seat that the server named"):
        called_of().received(replace(hello, nonce=b""))


def test_a_key_for_which_anybody_can_sign_is_none() -> None:
    weak = bytes([1]) + bytes(31)
    called = called_of(replace(ENDS, before_key=weak))
    called.received(Hello(caller_of().hello.protocol_version, "", 1, weak, NONCE))
    with pytest.raises(RemoteProtocolError, match=NOT_SIGNED):
        called.received(Signature(weak + bytes(32)))


@pytest.mark.parametrize("message", [Goodbye("bye"), Signature(bytes(64))])
def test_nothing_is_signed_before_a_challenge(message: Message) -> None:
    assert caller_of().received(message) is None
