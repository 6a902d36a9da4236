from typing import Any, final

import msgspec
import pytest

from fedlearn.coordination.people.authentication import ADMISSION_LIMIT_S, Admitted, Authentication, AuthenticationRules
from fedlearn.es.golden import GOLDEN_STEP
from fedlearn.wire.messages import PROTOCOL_VERSION, Challenge, Farewell, Hello, Proof
from fedlearn.wire.proof import Credentials, Identity
from tests.identities import ADA, BOB, TOKEN, hello_of, proof_of

HOME, FAR = "127.0.0.1", "198.51.100.7"
LOCAL = Credentials(Identity.of_seed(b"l" * 32))
BINDING = b"d" * 32


@final
class Scene:
    """A door, and those who come to it one after the other."""

    def __init__(self, **rules: Any) -> None:  # noqa: ANN401 (fields of AdmissionRules)
        self.now = 100.0
        self.door = Authentication(AuthenticationRules(local=LOCAL.identity.public_key.hex(), **rules))
        self.n_came = 0

    def connect(self, address: str = FAR) -> Farewell | None:
        self.n_came += 1
        nonce = self.n_came.to_bytes(32, "little")
        return self.door.connected(self.n_came, address, nonce=nonce, binding=BINDING, now=self.now)

    def greet(self, credentials: Credentials = ADA, **changes: Any) -> Challenge | Farewell:  # noqa: ANN401
        self.hello = msgspec.structs.replace(hello_of(credentials, threads=3), **changes)
        return self.door.greeted(self.n_came, self.hello, self.now)

    def prove(self, credentials: Credentials, challenge: Challenge) -> Admitted | Farewell:
        return self.door.proven(self.n_came, proof_of(credentials, self.hello, challenge, BINDING), self.now)

    def come(self, credentials: Credentials = ADA, address: str = FAR) -> Admitted | Farewell:
        """All the way, or as far as it goes."""
        if refusal := self.connect(address):
            return refusal
        challenge = self.greet(credentials)
        return challenge if isinstance(challenge, Farewell) else self.prove(credentials, challenge)

    def leave(self, number: int | None = None) -> None:
        self.door.disconnected(self.n_came if number is None else number)


def said(answer: object) -> tuple[str, str]:
    assert isinstance(answer, Farewell), answer
    return answer.kind, answer.reason


def test_whoever_proves_its_key_is_let_in_under_it() -> None:
    assert Scene().come() == Admitted("Ada", ADA.identity.public_key.hex(), is_local=False, threads=3)
    assert Scene().come(LOCAL) == Admitted("Ada", LOCAL.identity.public_key.hex(), is_local=True, threads=3)


def test_challenge_is_the_nonce_of_this_connection_and_nothing_else() -> None:
    scene = Scene()
    scene.connect()
    assert scene.greet() == Challenge((1).to_bytes(32, "little"), needs_token=False)


def test_anothers_identity_is_refused() -> None:
    scene = Scene()
    scene.connect()
    challenge = scene.greet(ADA)
    assert isinstance(challenge, Challenge)
    kind, reason = said(scene.prove(BOB, challenge))
    assert kind == "refused"
    assert "got another signature" in reason


def test_replayed_proof_is_refused() -> None:
    scene = Scene()
    scene.connect()
    challenge = scene.greet()
    assert isinstance(challenge, Challenge)
    proof, hello = proof_of(ADA, scene.hello, challenge, BINDING), scene.hello
    assert isinstance(scene.door.proven(1, proof, scene.now), Admitted)
    scene.connect()
    scene.door.greeted(2, hello, scene.now)
    assert said(scene.door.proven(2, proof, scene.now))[0] == "refused"


def test_proof_for_another_certificate_is_refused() -> None:
    scene = Scene()
    scene.connect()
    challenge = scene.greet()
    assert isinstance(challenge, Challenge)
    relayed = proof_of(ADA, scene.hello, challenge, binding=b"of the man in the middle")
    assert "somebody may be intercepting" in said(scene.door.proven(1, relayed, scene.now))[1]


@pytest.mark.parametrize("answer", [b"", bytes(8)])
@pytest.mark.parametrize("credentials", [ADA, LOCAL])
def test_who_computes_the_golden_step_otherwise_is_refused_with_both_digests(
    credentials: Credentials, answer: bytes
) -> None:
    scene = Scene()
    scene.connect()
    challenge = scene.greet(credentials)
    assert isinstance(challenge, Challenge)
    proof = msgspec.structs.replace(proof_of(credentials, scene.hello, challenge, BINDING), golden_step=answer)
    assert said(scene.door.proven(scene.n_came, proof, scene.now)) == (
        "refused",
        f"golden step: expected digest 76b95603a3e728a1, got {answer.hex() or 'none'}; this machine computes "
        "other numbers: install the fedlearn version of the server",
    )


def test_who_claims_to_be_local_has_to_prove_it() -> None:
    scene = Scene(token=TOKEN)
    scene.connect()
    challenge = scene.greet(LOCAL)
    assert isinstance(challenge, Challenge)
    assert said(scene.prove(BOB, challenge))[0] == "refused"


@pytest.mark.parametrize("version", [0, PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1])
def test_other_version_is_refused_before_anything_else_of_its_hello_is_looked_at(version: int) -> None:
    scene = Scene()
    scene.connect()
    kind, reason = said(scene.door.greeted(1, Hello(version, "Ada", 1), scene.now))
    assert kind == "refused"
    assert reason == (
        f"protocol version: expected {PROTOCOL_VERSION}, got {version}; install the fedlearn version of the server"
    )


@pytest.mark.parametrize("field", ["public_key", "nonce"])
def test_hello_without_a_key_or_a_nonce_is_refused(field: str) -> None:
    scene = Scene()
    scene.connect()
    assert "identity: expected a key of 32 bytes" in said(scene.greet(ADA, **{field: bytes(31)}))[1]


def test_token_is_asked_for_where_there_is_one() -> None:
    scene = Scene(token=TOKEN)
    assert isinstance(scene.come(msgspec.structs.replace(ADA, token=TOKEN)), Admitted)
    wrong = said(scene.come(msgspec.structs.replace(ADA, token=b"another one")))
    assert wrong == ("refused", "token: expected the server's, got another; ask its owner, name its file with --token")
    scene.connect()
    challenge = scene.greet()
    assert isinstance(challenge, Challenge)
    proof = proof_of(ADA, scene.hello, msgspec.structs.replace(challenge, needs_token=False), BINDING)
    assert proof == Proof(proof.signature, golden_step=GOLDEN_STEP)
    assert "token: expected the server's, got none" in said(scene.door.proven(scene.n_came, proof, 0.0))[1]


def test_servers_own_volunteers_need_no_token_and_stand_on_no_list() -> None:
    scene = Scene(token=TOKEN, allowed=frozenset[str]())
    assert isinstance(scene.come(LOCAL, HOME), Admitted)
    scene.connect(HOME)
    challenge = scene.greet(LOCAL)
    assert isinstance(challenge, Challenge)
    assert not challenge.needs_token


def test_who_is_not_on_the_list_is_refused_with_its_identity() -> None:
    scene = Scene(allowed=frozenset([ADA.identity.public_key.hex()]))
    assert isinstance(scene.come(ADA), Admitted)
    kind, reason = said(scene.come(BOB))
    assert kind == "refused"
    assert f"expected one that the server's owner listed, got {BOB.identity.public_key.hex()}" in reason


def test_connections_of_an_address_are_bounded_and_count_until_they_end() -> None:
    scene = Scene(connections_per_address=2)
    assert [scene.connect(), scene.connect()] == [None, None]
    assert said(scene.connect())[0] == "try_again"
    assert scene.connect("198.51.100.8") is None
    scene.leave(1)
    scene.leave(3)  # the one that was turned away
    assert scene.connect() is None
    assert said(scene.connect())[0] == "try_again"


def test_servers_own_volunteers_are_not_hit_by_a_flood_from_its_machine() -> None:
    scene = Scene(connections_per_address=1, connections_per_identity=1, joins_per_minute=1)
    assert isinstance(scene.come(ADA, HOME), Admitted)
    kind, reason = said(scene.come(BOB, HOME))
    assert kind == "try_again"
    assert reason == "connections: expected at most 1 from one address, got one more; try again later"
    for _ in range(5):
        assert isinstance(scene.come(LOCAL, HOME), Admitted)


def test_connections_of_an_identity_are_bounded_wherever_they_come_from() -> None:
    scene = Scene(connections_per_identity=2)
    for number in range(2):
        assert isinstance(scene.come(ADA, f"198.51.100.{number}"), Admitted)
    kind, reason = said(scene.come(ADA, "198.51.100.9"))
    assert kind == "try_again"
    assert "expected at most 2 of one identity" in reason
    assert isinstance(scene.come(BOB, "198.51.100.9"), Admitted)
    scene.leave(1)
    assert isinstance(scene.come(ADA, "198.51.100.9"), Admitted)


@pytest.mark.parametrize("whose", ["address", "identity"])
def test_joins_a_minute_are_bounded(whose: str) -> None:
    scene = Scene(joins_per_minute=3)

    def come(number: int) -> Admitted | Farewell:
        scene.now += 0.1
        who = ADA if whose == "identity" else Credentials(Identity.of_seed(bytes([number]) * 32))
        answer = scene.come(who, FAR if whose == "address" else f"198.51.100.{number}")
        scene.leave()
        return answer

    assert [type(come(number)) for number in range(3)] == [Admitted] * 3
    kind, reason = said(come(3))
    assert (kind, reason) == (
        "try_again",
        f"joins: expected at most 3 per minute from one {whose}, got one more; try again later",
    )
    scene.now += 20.0
    assert isinstance(come(4), Admitted)


def test_who_proves_nothing_in_time_is_told_once() -> None:
    scene = Scene()
    scene.connect()
    scene.now += 1.0
    scene.come()
    scene.connect()
    scene.greet()
    assert scene.door.overdue(100.0 + ADMISSION_LIMIT_S - 0.1) == {}
    assert list(scene.door.overdue(100.0 + ADMISSION_LIMIT_S)) == [1]
    assert [f.kind for f in scene.door.overdue(101.0 + ADMISSION_LIMIT_S).values()] == ["try_again"]
    assert scene.door.overdue(1e9) == {}


def test_door_remembers_nobody_who_went() -> None:
    scene = Scene(connections_per_address=9, connections_per_identity=9)
    for _ in range(3):
        scene.come()
        scene.leave()
        scene.connect()
        scene.leave()
        scene.leave()
    door = scene.door
    assert [door._callers, door._unidentified, door._by_network, door._by_identity] == [{}, {}, {}, {}]
