"""The credit of each identity: its members in Updates, its work and its time, added up over some steps."""

from collections.abc import Mapping
from typing import final

import msgspec

from fedlearn.wire.messages import Credit

INTERVAL_S = 1.0
"""Seconds between two entries; a server that is killed loses what came after the last one."""

MAX_TOTALS = 100_000
"""Identities whose totals are kept; beyond, those that contributed nothing for longest are dropped first. The entries
keep all."""


class Earned(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What one identity contributed."""

    name: str = ""
    """The name that it last gave itself."""
    members: int = 0
    """Members that counted in an Update."""
    work: int = 0
    """Work of trials in the task's unit (tokens, examples, episodes), those that check others included."""
    seconds: float = 0.0
    """Seconds from the opening of a step to its last Result in it, summed over steps."""
    agreed: int = 0
    """Groups that were checked and agreed."""
    caught: int = 0
    """Results that were found false."""
    doubt: float | None = None
    """The doubt in the identity at that time (see `evidence`); None where none of its results was checked since the
    entry before."""

    def add(self, other: "Earned") -> None:
        """Adds a later contribution."""
        self.name = other.name or self.name
        self.members += other.members
        self.work += other.work
        self.seconds += other.seconds
        self.agreed += other.agreed
        self.caught += other.caught
        self.doubt = self.doubt if other.doubt is None else other.doubt


class Entry(msgspec.Struct, frozen=True):
    """Contributions in the steps from `first_step` to `step`."""

    first_step: int
    step: int
    earned: Mapping[str, Earned]
    """Contributions by identity, in hexadecimal digits."""


@final
class Ledger:
    """Adds up the contributions of identities until an entry is due."""

    def __init__(
        self, step: int, now: float, *, work_per_member: int, before: Mapping[str, Earned] | None = None
    ) -> None:
        """`before` holds contributions from before this ledger began."""
        self._totals = dict(before or {})
        self.first_step = step
        self._work_per_member = work_per_member
        self._due = now + INTERVAL_S
        self._earned: dict[str, Earned] = {}

    def of(self, identity: str, name: str) -> Earned:
        """What an identity has contributed since the last entry."""
        earned = self._earned.setdefault(identity, Earned())
        earned.name = name
        return earned

    def add(self, identity: str, name: str, members: int, seconds: float) -> None:
        """Counts members that go into an Update."""
        earned = self.of(identity, name)
        earned.members += members
        earned.work += members * self._work_per_member
        earned.seconds += seconds

    def add_check(self, identity: str, name: str, members: int, seconds: float) -> None:
        """Counts others' members that an identity computed again: they are work, but not part of an Update."""
        earned = self.of(identity, name)
        earned.work += members * self._work_per_member
        earned.seconds += seconds

    def is_due(self, now: float) -> bool:
        """Checks if an entry is due, and if so, sets the time of the next one."""
        if now < self._due:
            return False
        self._due = now + INTERVAL_S
        return True

    def entry(self, step: int) -> Entry:
        """An entry of everything since the last one, up to this step."""
        entry = Entry(self.first_step, step, self._earned)
        for identity, earned in self._earned.items():
            total = self._totals.pop(identity, Earned())
            total.add(earned)
            self._totals[identity] = total
        while len(self._totals) > MAX_TOTALS:
            del self._totals[next(iter(self._totals))]
        self.first_step, self._earned = step + 1, {}
        return entry

    def total(self, identity: str) -> Credit | None:
        """Everything that an identity has contributed to the run up to the last entry; None where there is nothing."""
        total = self._totals.get(identity)
        if total is None:
            return None
        return Credit(total.members, total.work, int(total.seconds), total.agreed, total.caught)
