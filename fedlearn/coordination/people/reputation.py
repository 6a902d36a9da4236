"""What an identity has shown, on all its connections: whether it answers in time, and whether its results are true."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import final

import msgspec

PROOF_GROUPS = 8
"""Groups that must be checked and agree before an identity's results count unchecked."""

MAX_CAUGHT = 3
"""False results after which an identity is sent away for good."""

MAX_STANDINGS = 100_000
"""Identities that are remembered; beyond, those without a false result go first, the longest unseen before others."""

_MOST_NEEDED = 1024
_FORGIVING = 16
"""After this many times the steps that were asked of it, an identity is asked for half as many."""

_LONGEST_REST = 10
"""The longest rest of an identity that sends nothing is 2 to the power of this, in steps."""


class Reputation(msgspec.Struct):
    """The standing of one identity."""

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
    """What its audits add up to since its last false result, as `evidence` has it."""
    n_in_time: int = 0
    """Steps in a row for which its whole lease was in."""
    n_needed: int = 0
    """Number of such steps after which a step waits for it again."""
    n_idle: int = 0
    """Steps in a row in which it had a lease and sent nothing."""
    benched_until: int = 0
    """Step before which it gets no lease."""
    seats: "tuple[Reputation, ...]" = ()
    """Of a crew, in the order in which members pass them: what is found out is found out about them, not about it."""

    @property
    def holders(self) -> "tuple[Reputation, ...]":
        """Whose work it is: its own, or that of all seats of a crew."""
        return self.seats or (self,)

    @property
    def is_shared(self) -> bool:
        """Whether it is that of several volunteers, who hold a replica between them."""
        return len(self.seats) > 1

    @property
    def is_proven(self) -> bool:
        """Whether its results count before they are checked."""
        if self.seats:
            return all(seat.is_proven for seat in self.seats)
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
        """Takes note that a step waited in vain: the next does once it was in time for 1, 2, 4, ... more steps."""
        self.n_in_time = 0
        self.n_needed = min(max(2 * self.n_needed, 1), _MOST_NEEDED)

    def rest(self, step: int) -> None:
        """Keeps it out for 1, 2, 4, ... steps, longer each time that it sent nothing."""
        self.n_idle += 1
        self.benched_until = step + 1 + 2 ** min(self.n_idle - 1, _LONGEST_REST)

    def agreed(self, n_groups: int) -> None:
        """Takes note that `n_groups` of its groups were checked and agreed."""
        self.n_agreed += n_groups

    def was_caught(self) -> None:
        """Takes note that a result was false: it is a stranger again."""
        self.n_caught += 1
        self.n_agreed, self.doubt = 0, 0.0

    def blamed(self, place: int | None) -> "tuple[Reputation, ...]":
        """Who answers for a false result: of a crew the seat at `place`, or all its seats where that is not known.

        The server's own volunteers do for nothing.
        """
        guilty = self.holders if place is None else self.holders[place : place + 1]
        # An identity may have several seats.
        return tuple({standing.identity: standing for standing in guilty if not standing.is_local}.values())


@final
class Reputations:
    """The standings of all identities, in a table of bounded size, since identities cost nothing."""

    def __init__(self, known: Iterable[Reputation] = ()) -> None:
        self._by_identity = OrderedDict((standing.identity, standing) for standing in known)

    def of(self, identity: str, *, name: str, is_local: bool) -> Reputation:
        """The standing of an identity; a new one if it is not known."""
        standing = self._by_identity.setdefault(identity, Reputation(identity))
        standing.name, standing.is_local = name, is_local
        self._by_identity.move_to_end(identity)
        while len(self._by_identity) > MAX_STANDINGS:
            self._forget_one()
        return standing

    def _forget_one(self) -> None:
        """Forgets whoever was asked for longest ago, and who was caught last; never who is asked for now."""
        now = next(reversed(self._by_identity))
        others = (one.identity for one in self._by_identity.values() if not one.n_caught and one.identity != now)
        del self._by_identity[next(others, next(iter(self._by_identity)))]
