"""Admission to a run: proofs of identity, the token, and limits on connections and joins."""

from typing import Literal, final

import msgspec

from fedlearn.coordination.people.rate_limit import RateLimit
from fedlearn.es.golden import GOLDEN_STEP
from fedlearn.wire.messages import PROTOCOL_VERSION, Challenge, Farewell, Hello, Proof
from fedlearn.wire.networks import LOOPBACK, network_of
from fedlearn.wire.proof import KEY_BYTES, NONCE_BYTES, is_signed, knows_token

ADMISSION_LIMIT_S = 30.0
"""The longest time from the connection to the proof."""


class AuthenticationRules(msgspec.Struct, frozen=True):
    """The rules by which a server admits volunteers; a limit of 0 means no limit."""

    token: bytes = b""
    """The token that volunteers must know; empty: no token is asked for."""
    allowed: frozenset[str] | None = None
    """The identities that are admitted, in hexadecimal digits; None: all."""
    local: str = ""
    """The identity of the server's own volunteers, to which no rule applies."""
    connections_per_address: int = 0
    connections_per_identity: int = 0
    joins_per_minute: int = 0
    """Joins a minute from one address, and of one identity."""


class Admitted(msgspec.Struct, frozen=True):
    """A volunteer that has proven its identity."""

    name: str
    identity: str
    is_local: bool
    threads: int


class _Caller(msgspec.Struct):
    """A connection, from its first moment to its last."""

    network: str
    challenge_nonce: bytes
    binding: bytes
    deadline: float
    hello: Hello | None = None
    challenge: Challenge | None = None
    identity: str = ""


@final
class Authentication:
    """Decides who is admitted. A connection is to be ended after a Farewell."""

    def __init__(self, rules: AuthenticationRules) -> None:
        self._rules = rules
        self._callers: dict[int, _Caller] = {}
        self._unidentified: dict[int, _Caller] = {}
        """The callers that have not proven an identity yet, the oldest first."""
        self._by_network: dict[str, int] = {}
        self._by_identity: dict[str, int] = {}
        self._joins = RateLimit(rules.joins_per_minute)
        self._excluded: set[str] = set()

    def allow(self, allowed: frozenset[str] | None) -> None:
        """Takes the owner's new list of identities; None: all are admitted."""
        self._rules = msgspec.structs.replace(self._rules, allowed=allowed)

    def exclude(self, identity: str) -> None:
        """Excludes an identity, as the owner asks."""
        self._excluded.add(identity)

    def connected(self, peer: int, address: str, *, nonce: bytes, binding: bytes, now: float) -> Farewell | None:
        """Takes note of a connection from an address; `nonce` is random, `binding` that of the server's certificate."""
        network = network_of(address)
        n_connections = self._by_network.get(network, 0)
        self._by_network[network] = n_connections + 1
        self._callers[peer] = self._unidentified[peer] = _Caller(network, nonce, binding, now + ADMISSION_LIMIT_S)
        # The server's own volunteers connect from there as well: the Hello shows which ones those are.
        if network == LOOPBACK:
            return None
        return self._check_connections(n_connections)

    def greeted(self, peer: int, hello: Hello, now: float) -> Challenge | Farewell:
        """Answers the Hello of a connection."""
        if hello.protocol_version != PROTOCOL_VERSION:
            return _refused(
                f"protocol version: expected {PROTOCOL_VERSION}, got {hello.protocol_version}; "
                "install the fedlearn version of the server"
            )
        if len(hello.public_key) != KEY_BYTES or len(hello.nonce) != NONCE_BYTES:
            return _refused(
                f"identity: expected a key of {KEY_BYTES} bytes and a nonce of {NONCE_BYTES}, got "
                f"{len(hello.public_key)} and {len(hello.nonce)}; see docs/protocol.md, Hello"
            )
        caller, is_local = self._callers[peer], hello.public_key.hex() == self._rules.local
        if not is_local:
            if caller.network == LOOPBACK and (refusal := self._check_connections(self._by_network[LOOPBACK] - 1)):
                return refusal
            if not self._joins.take(f"address {caller.network}", now):
                return self._too_many_joins("address")
        caller.hello = hello
        caller.challenge = Challenge(caller.challenge_nonce, bool(self._rules.token) and not is_local)
        return caller.challenge

    def proven(self, peer: int, proof: Proof, now: float) -> Admitted | Farewell:
        """Answers the Proof of a connection."""
        caller, rules = self._callers[peer], self._rules
        hello, challenge = caller.hello, caller.challenge
        assert hello is not None
        assert challenge is not None
        if not is_signed(proof, hello, challenge, caller.binding):
            return _refused(
                "identity: expected this conversation signed by the key of the Hello, got another signature; somebody "
                "may be intercepting the connection, or the key is not the volunteer's"
            )
        if proof.golden_step != GOLDEN_STEP:
            return _refused(
                f"golden step: expected digest {GOLDEN_STEP.hex()}, got {proof.golden_step.hex() or 'none'}; "
                "this machine computes other numbers: install the fedlearn version of the server"
            )
        identity = hello.public_key.hex()
        is_local = identity == rules.local
        if not is_local:
            if challenge.needs_token and not knows_token(proof, rules.token, hello, challenge, caller.binding):
                got = "another" if proof.token_proof else "none"
                return _refused(f"token: expected the server's, got {got}; ask its owner, name its file with --token")
            if refusal := self.objection(identity):
                return refusal
            if not self._joins.take(f"identity {identity}", now):
                return self._too_many_joins("identity")
            n_connections = self._by_identity.get(identity, 0)
            if 0 < rules.connections_per_identity <= n_connections:
                return _again(
                    f"connections: expected at most {rules.connections_per_identity} of one identity, got one more; "
                    "end one of them, or give this machine an identity of its own"
                )
        del self._unidentified[peer]
        caller.identity = identity
        self._by_identity[identity] = self._by_identity.get(identity, 0) + 1
        return Admitted(hello.name, identity, is_local, hello.threads)

    def objection(self, identity: str) -> Farewell | None:
        """The reason why this identity may not take part; None where it may."""
        allowed = self._rules.allowed
        if identity in self._excluded:
            return _refused("identity: the server's owner sent it away, for as long as this server runs; ask the owner")
        if identity == self._rules.local or allowed is None or identity in allowed:
            return None
        return _refused(
            f"identity: expected one that the server's owner listed, got {identity}; ask the owner to add it"
        )

    def overdue(self, now: float) -> dict[int, Farewell]:
        """Farewells to connections that had enough time to prove their identity; each is given once."""
        reason = f"identity: expected a proof within {ADMISSION_LIMIT_S:g} s, got none; try again"
        found: dict[int, Farewell] = {}
        for peer, caller in self._unidentified.items():
            if now < caller.deadline:
                break
            found[peer] = Farewell("try_again", reason)
        for peer in found:
            del self._unidentified[peer]
        return found

    def disconnected(self, peer: int) -> None:
        """Takes note that a connection ended."""
        self._unidentified.pop(peer, None)
        caller = self._callers.pop(peer, None)
        if caller is None:
            return
        _decrease(self._by_network, caller.network)
        if caller.identity:
            _decrease(self._by_identity, caller.identity)

    def _check_connections(self, n_others: int) -> Farewell | None:
        limit = self._rules.connections_per_address
        if not 0 < limit <= n_others:
            return None
        return _again(f"connections: expected at most {limit} from one address, got one more; try again later")

    def _too_many_joins(self, whose: Literal["address", "identity"]) -> Farewell:
        limit = self._rules.joins_per_minute
        return _again(f"joins: expected at most {limit} per minute from one {whose}, got one more; try again later")


def _refused(reason: str) -> Farewell:
    return Farewell("refused", reason)


def _again(reason: str) -> Farewell:
    return Farewell("try_again", reason)


def _decrease(counts: dict[str, int], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
