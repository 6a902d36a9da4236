"""What an identity has shown of itself, on whichever connection: whether it answers in time, and tells the truth."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import final

import msgspec

PROOF_GROUPS = 8
"""Groups that were recomputed and agreed: from then on results count before they are checked."""

MAX_CAUGHT = 3
"""False results after which an identity is sent away for good."""

MAX_STANDINGS = 100_000
"""Identities that are remembered; of those without a false result the longest unseen go first."""

_MOST_NEEDED = 1024
_FORGIVING = 16
"""Whoever was in time for so many times what was asked of it has the half asked of it from then on."""

_LONGEST_REST = 10
"""Whoever sends nothing rests for at most 2 to the power of this, in steps."""


class Standing(msgspec.Struct):
    """One identity's."""

    identity: str
    name: str = ""
    """As it last called itself."""
    is_local: bool = False
    """Whether the server started it itself."""
    n_agreed: int = 0
    """Groups that were recomputed and agreed since it last was caught."""
    n_caught: int = 0
    """False results."""
    n_in_time: int = 0
    """Steps in a row for which its whole lease was in."""
    n_needed: int = 0
    """How many of them anybody waits for it again after."""
    n_idle: int = 0
    """Steps in a row that it was part of without a single result."""
    benched_until: int = 0
    """Step before which it gets no lease."""
    seats: "tuple[Standing, ...]" = ()
    """Of a crew: what is found out about it is found out about each."""

    @property
    def holders(self) -> "tuple[Standing, ...]":
        """Whose work it is: its own, or that of all seats of a crew."""
        return self.seats or (self,)

    @property
    def is_proven(self) -> bool:
        """Whether its results count before they are checked."""
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
        """All of its lease was in before the step closed."""
        self.n_in_time += 1
        if self.n_in_time >= _FORGIVING * self.n_needed > 0:
            self.n_needed //= 2

    def was_late(self) -> None:
        """A step waited for it in vain: it must be in time for 1, 2, 4, ... steps before the next one does."""
        self.n_in_time = 0
        self.n_needed = min(max(2 * self.n_needed, 1), _MOST_NEEDED)

    def rest(self, step: int) -> None:
        """Keeps it out for a while: 1, 2, 4, ... steps, the longer the more often it sent nothing."""
        self.n_idle += 1
        self.benched_until = step + 1 + 2 ** min(self.n_idle - 1, _LONGEST_REST)

    def agreed(self, n_groups: int) -> None:
        """So many groups of it were recomputed, and were what it said."""
        self.n_agreed += n_groups
        for standing in self.seats:
            standing.agreed(n_groups)

    def was_caught(self) -> None:
        """A result was false: whatever it had earned is gone."""
        self.n_caught += 1
        self.n_agreed = 0
        for standing in self.seats:
            standing.was_caught()


@final
class Standings:
    """Of everybody who was here; bounded, since identities cost nothing."""

    def __init__(self, known: Iterable[Standing] = ()) -> None:
        self._by_identity = OrderedDict((standing.identity, standing) for standing in known)

    def of(self, identity: str, *, name: str, is_local: bool) -> Standing:
        """The standing of an identity, that of a newcomer if it was never here."""
        standing = self._by_identity.setdefault(identity, Standing(identity))
        standing.name, standing.is_local = name, is_local
        self._by_identity.move_to_end(identity)
        while len(self._by_identity) > MAX_STANDINGS:
            self._forget_one()
        return standing

    def _forget_one(self) -> None:
        for identity, standing in self._by_identity.items():
            if not standing.n_caught:
                del self._by_identity[identity]
                return
        self._by_identity.popitem(last=False)
