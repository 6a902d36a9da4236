"""All connected volunteers, from the first message to the last: who is admitted, and who is sent away."""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import final

from fedlearn.coordination.audits.audit import Verdict
from fedlearn.coordination.effects import Dismiss, Left, Notice, Peer, RecordVerdict, Send, ServerEffect
from fedlearn.coordination.people.authentication import Authentication, AuthenticationRules
from fedlearn.coordination.people.reputation import Reputation, Reputations
from fedlearn.coordination.people.roster import Held, Phase, Roster, Volunteer
from fedlearn.wire.messages import Farewell, Hello, Proof, Resync, Welcome

MAX_RESYNCS = 3
"""Drifts in a row after which a volunteer is sent away, because its arithmetic cannot be trusted."""


LEAST_DIGITS = 4
"""The fewest digits of an identity with which an operator can name it."""

MAX_NAMES = 20
"""The most names in one message to the operator."""


@final
class Membership:
    """Admits volunteers by the rules; the `roster` has all connections, unauthenticated ones included."""

    def __init__(self, welcome: Welcome, rules: AuthenticationRules, known: Iterable[Reputation]) -> None:
        self.roster = Roster()
        self._gone: list[tuple[Volunteer, str]] = []
        self._welcome = welcome
        self._admission = Authentication(rules)
        self._reputations = Reputations(known)

    def connected(self, peer: Peer, now: float, *, nonce: bytes, address: str, binding: bytes) -> list[ServerEffect]:
        """Takes note of a connection, which is not authenticated until it has proven its identity."""
        refusal = self._admission.connected(peer, address, nonce=nonce, binding=binding, now=now)
        if refusal is not None:
            return [Dismiss(peer, refusal)]
        self.roster.volunteers[peer] = Volunteer(peer, address=address)
        return []

    def disconnected(self, peer: Peer) -> Volunteer | None:
        """Takes note that a connection ended; gives its volunteer, unless it was sent away before."""
        self._admission.disconnected(peer)
        return self.roster.volunteers.get(peer)

    def greet(self, volunteer: Volunteer, hello: Hello, now: float) -> list[ServerEffect]:
        """Asks a connection for its proof."""
        answer = self._admission.greeted(volunteer.peer, hello, now)
        return self.dismiss(volunteer, answer) if isinstance(answer, Farewell) else [Send(volunteer.peer, answer)]

    def let_in(self, volunteer: Volunteer, proof: Proof, now: float) -> list[ServerEffect]:
        """Welcomes a volunteer that has proven its identity; it then waits for the weights."""
        answer = self._admission.proven(volunteer.peer, proof, now)
        if isinstance(answer, Farewell):
            return self.dismiss(volunteer, answer)
        volunteer.threads = answer.threads
        volunteer.name = answer.name or f"volunteer {volunteer.peer}"
        reputation = self._reputations.of(answer.identity, name=volunteer.name, is_local=answer.is_local)
        volunteer.reputation = reputation
        if reputation.is_banned:
            reason = f"false results of this identity were found {reputation.n_caught} times"
            return self.dismiss(volunteer, Farewell("refused", reason))
        volunteer.enter(Phase.WAITING)
        volunteer.memory_bytes = proof.memory_bytes
        volunteer.listens_at = proof.listens_at
        volunteer.held = Held(proof.held_step, proof.held_digest) if proof.held_digest else None
        return [Send(volunteer.peer, self._welcome)]

    def crew_reputation(self, name: str, seats: Sequence[Volunteer]) -> Reputation:
        """The reputation of a crew, which is that of its seats together."""
        reputations = tuple(seat.reputation for seat in seats)
        identities = b"".join(bytes.fromhex(reputation.identity) for reputation in reputations)
        is_local = all(reputation.is_local for reputation in reputations)
        reputation = self._reputations.of(sha256(identities).hexdigest(), name=name, is_local=is_local)
        reputation.seats = reputations
        return reputation

    def allow(self, allowed: frozenset[str] | None) -> list[ServerEffect]:
        """Takes the owner's new list of identities, and sends away volunteers that are not on it."""
        self._admission.allow(allowed)
        effects: list[ServerEffect] = []
        for volunteer in [v for v in self.roster.volunteers.values() if v.phase is not Phase.UNAUTHENTICATED]:
            if objection := self._admission.objection(volunteer.reputation.identity):
                effects += self.dismiss(volunteer, objection)
        return effects

    def send_away(self, who: str) -> list[ServerEffect]:
        """Ends all connections of an identity for good, given its name or its first digits.

        Raises:
            ValueError: no volunteer or several have that name, or it is one of the server's own.
        """
        there = [v for v in self.roster.volunteers.values() if v.phase is not Phase.UNAUTHENTICATED]
        found = [v for v in there if v.name == who]
        if not found and len(who) >= LEAST_DIGITS:
            found = [v for v in there if v.reputation.identity.startswith(who.lower())]
        if not found:
            names = ", ".join(sorted({v.name for v in there})[:MAX_NAMES]) or "none"
            raise ValueError(
                f"volunteer: expected the name or identity of one who is there, got {who!r}; there: {names}"
            )
        identity = found[0].reputation.identity
        if any(v.reputation.identity != identity for v in found):
            raise ValueError(f"volunteer: expected one, {who!r} are several; give the first digits of an identity")
        if found[0].reputation.is_local:
            raise ValueError(
                f"volunteer: expected one from another machine, {who!r} is the server's own; "
                "resume with fewer --volunteers"
            )
        self._admission.exclude(identity)
        farewell = self._admission.objection(identity)
        assert farewell is not None, "an identity that was just excluded"
        return [e for v in there if v.reputation.identity == identity for e in self.dismiss(v, farewell)]

    def turn_out(self, now: float) -> list[ServerEffect]:
        """Sends away connections that take too long to prove their identity."""
        overdue = self._admission.overdue(now)
        return [
            effect
            for peer, farewell in overdue.items()
            if peer in self.roster.volunteers
            for effect in self.dismiss(self.roster.volunteers[peer], farewell)
        ]

    def punish(self, guilty: Sequence[Reputation], verdict: Verdict) -> list[ServerEffect]:
        """Reports false results, and sends away those of the guilty who had too many."""
        what = f"results of step {verdict.step} were false, off by {verdict.difference:.3g} times the tolerance"
        if verdict.adds_up:
            what = f"results up to step {verdict.step} were false, each a little more than machines differ by"
        effects: list[ServerEffect] = [Notice(f"{verdict.name}: {what}; they don't count"), RecordVerdict(verdict)]
        for reputation in [reputation for reputation in guilty if reputation.is_banned]:
            for volunteer in [v for v in self.roster.volunteers.values() if v.reputation is reputation]:
                effects += self.dismiss(volunteer, Farewell("refused", f"{what}, {reputation.n_caught} times in all"))
        return effects

    def quarantine(self, volunteer: Volunteer, what: str) -> list[ServerEffect]:
        """Excludes a volunteer whose replica differs until it has new weights; the results of its lease do not
        count."""
        volunteer.n_resyncs += 1
        if volunteer.lease is not None:
            volunteer.lease.void()
            volunteer.lease = None
        if volunteer.n_resyncs > MAX_RESYNCS:
            reason = f"{what}, {volunteer.n_resyncs} times in a row; its arithmetic can't be trusted"
            return self.dismiss(volunteer, Farewell("refused", reason))
        volunteer.enter(Phase.WAITING)
        volunteer.blocks.clear()
        notice = Notice(f"{volunteer.name} drifted: {what}; it is resynchronised and its results do not count")
        return [notice, Send(volunteer.peer, Resync(what))]

    def dismiss(self, volunteer: Volunteer, farewell: Farewell) -> list[ServerEffect]:
        """Sends a volunteer away; the results of its lease do not count."""
        self._remove(volunteer, farewell.reason)
        if volunteer.lease is not None:
            volunteer.lease.void()
        if not volunteer.name and farewell.kind == "try_again":
            return [Dismiss(volunteer.peer, farewell)]  # a flood must not fill the terminal
        if volunteer.has_joined:
            return [Left(volunteer.name, f"it was sent away: {farewell.reason}"), Dismiss(volunteer.peer, farewell)]
        name = volunteer.name or f"connection {volunteer.peer}"
        return [Notice(f"{name} was sent away: {farewell.reason}"), Dismiss(volunteer.peer, farewell)]

    def forget(self, volunteer: Volunteer, reason: str) -> list[ServerEffect]:
        """Removes a volunteer that left; its lease ends with the results so far."""
        self._remove(volunteer, reason)
        if volunteer.lease is not None:
            volunteer.lease.end()
        if volunteer.has_joined:
            return [Left(volunteer.name, reason)]
        return [Notice(f"{volunteer.name or f'connection {volunteer.peer}'} left: {reason}")]

    def take_gone(self) -> list[tuple[Volunteer, str]]:
        """The volunteers with seats that are gone since the last call, and why."""
        gone, self._gone = self._gone, []
        return gone

    def _remove(self, volunteer: Volunteer, reason: str) -> None:
        del self.roster.volunteers[volunteer.peer]
        volunteer.enter(Phase.GONE)
        if volunteer.is_seated:
            self._gone.append((volunteer, reason))
