"""The reputation of an identity over all its connections: whether it answers in time, and whether its results are
true."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import final

import msgspec

PROOF_GROUPS = 8
"""Groups that must be checked and agree before an identity's results count unchecked."""

MAX_CAUGHT = 3
"""False results after which an identity is sent away for good."""

MAX_REPUTATIONS = 100_000
"""Identities that are remembered; beyond, those without a false result are dropped first, the longest unseen before
others."""

_MOST_NEEDED = 1024
_FORGIVING = 16
"""The number of required steps in time is halved after an identity was in time for this many times as many."""

_LONGEST_REST = 10
"""The longest rest of an identity that sends nothing is 2 to the power of this, in steps."""


class Reputation(msgspec.Struct):
    """The reputation of one identity."""

    identity: str
    name: str = ""
    """The name that it last gave itself."""
    is_local: bool = False
    """Whether the server started it itself."""
    n_agreed: int = 0
    """Groups that were checked and agreed since its last false result."""
    n_caught: int = 0
    """Number of false results."""
    doubt: float = 0.0
    """Sum of the evidence of its audits since its last false result (see `evidence`)."""
    n_in_time: int = 0
    """Steps in a row for which its whole lease was in."""
    n_needed: int = 0
    """Number of steps in a row that it must be in time for before a step waits for it again."""
    n_idle: int = 0
    """Steps in a row in which it had a lease and sent nothing."""
    benched_until: int = 0
    """Step before which it gets no lease."""
    seats: "tuple[Reputation, ...]" = ()
    """Reputations of a crew's seats, in the order in which members pass them: findings are recorded there, not here."""

    @property
    def holders(self) -> "tuple[Reputation, ...]":
        """The identities that do the work: its own, or those of all seats of a crew."""
        return self.seats or (self,)

    @property
    def is_shared(self) -> bool:
        """Whether it is the reputation of a crew, whose volunteers hold a replica together."""
        return len(self.seats) > 1

    @property
    def is_trusted(self) -> bool:
        """Whether its results count before they are checked, since it is trusted."""
        if self.seats:
            return all(seat.is_trusted for seat in self.seats)
        return self.is_local or self.n_agreed >= PROOF_GROUPS

    @property
    def is_steady(self) -> bool:
        """Whether a step may wait for it."""
        return self.n_in_time >= self.n_needed

    @property
    def is_banned(self) -> bool:
        """Whether its results were false too often."""
        return self.n_caught >= MAX_CAUGHT

    def was_in_time(self) -> None:
        """Takes note that its whole lease was in before the step closed."""
        self.n_in_time += 1
        if self.n_in_time >= _FORGIVING * self.n_needed > 0:
            self.n_needed //= 2

    def was_late(self) -> None:
        """Takes note that a step waited in vain: the next ones do not wait for it until it was in time for 1, 2, 4, ...
        more steps."""
        self.n_in_time = 0
        self.n_needed = min(max(2 * self.n_needed, 1), _MOST_NEEDED)

    def rest(self, step: int) -> None:
        """Excludes it for 1, 2, 4, ... steps, longer each time that it sent nothing."""
        self.n_idle += 1
        self.benched_until = step + 1 + 2 ** min(self.n_idle - 1, _LONGEST_REST)

    def agreed(self, n_groups: int) -> None:
        """Takes note that `n_groups` of its groups were checked and agreed."""
        self.n_agreed += n_groups

    def was_caught(self) -> None:
        """Takes note that a result was false: the identity is untrusted again."""
        self.n_caught += 1
        self.n_agreed, self.doubt = 0, 0.0

    def blamed(self, place: int | None) -> "tuple[Reputation, ...]":
        """The identities that are responsible for a false result: the seat at `place` of a crew, or all its seats where
        `place` is None.

        The server's own volunteers are never blamed.
        """
        guilty = self.holders if place is None else self.holders[place : place + 1]
        # An identity may have several seats.
        return tuple({reputation.identity: reputation for reputation in guilty if not reputation.is_local}.values())


@final
class Reputations:
    """The reputations of all identities, in a table of bounded size, since identities cost nothing."""

    def __init__(self, known: Iterable[Reputation] = ()) -> None:
        self._by_identity = OrderedDict((reputation.identity, reputation) for reputation in known)

    def of(self, identity: str, *, name: str, is_local: bool) -> Reputation:
        """The reputation of an identity; a new one if it is not known."""
        reputation = self._by_identity.setdefault(identity, Reputation(identity))
        reputation.name, reputation.is_local = name, is_local
        self._by_identity.move_to_end(identity)
        while len(self._by_identity) > MAX_REPUTATIONS:
            self._forget_one()
        return reputation

    def _forget_one(self) -> None:
        """Forgets the identity that was asked for longest ago; those with false results last, and never the one asked
        for now."""
        now = next(reversed(self._by_identity))
        others = (one.identity for one in self._by_identity.values() if not one.n_caught and one.identity != now)
        del self._by_identity[next(others, next(iter(self._by_identity)))]
