"""Who did what: the members of each identity that went into Updates, added up over some steps."""

from collections.abc import Mapping
from typing import final

import msgspec

from fedlearn.wire.messages import Credit

INTERVAL_S = 1.0
"""Between two entries of the ledger; a server that is killed loses this much of it."""

MAX_TOTALS = 100_000
"""Identities whose sum is known; those that earned nothing for the longest go first. The entries keep all."""


class Earned(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One identity's part."""

    name: str = ""
    """As it last called itself."""
    members: int = 0
    """That are in an Update."""
    work: int = 0
    """Of trials, in the task's unit: tokens, examples, episodes; those to check others are among them."""
    seconds: float = 0.0
    """From the opening of a step to its last Result in it, over all steps."""
    agreed: int = 0
    """Groups that were computed again, and were what it had said."""
    caught: int = 0
    """Results that were false."""

    def add(self, other: "Earned") -> None:
        """Adds what was earned later."""
        self.name = other.name or self.name
        self.members += other.members
        self.work += other.work
        self.seconds += other.seconds
        self.agreed += other.agreed
        self.caught += other.caught


class Entry(msgspec.Struct, frozen=True):
    """What was earned from `first_step` to `step`."""

    first_step: int
    step: int
    earned: Mapping[str, Earned]
    """By identity."""


@final
class Ledger:
    """Adds up until an entry is due."""

    def __init__(
        self, step: int, now: float, *, work_per_member: int, before: Mapping[str, Earned] | None = None
    ) -> None:
        """`before`: what was earned in the run before this ledger began."""
        self._totals = dict(before or {})
        self.first_step = step
        self._work_per_member = work_per_member
        self._due = now + INTERVAL_S
        self._earned: dict[str, Earned] = {}

    def of(self, identity: str, name: str) -> Earned:
        """What an identity has earned since the last entry."""
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
        """Counts members of others that it computed again: work like any other, which no Update shows."""
        earned = self.of(identity, name)
        earned.work += members * self._work_per_member
        earned.seconds += seconds

    def is_due(self, now: float) -> bool:
        """Whether it is time for an entry; asks for the next one after another interval."""
        if now < self._due:
            return False
        self._due = now + INTERVAL_S
        return True

    def entry(self, step: int) -> Entry:
        """All since the last one, up to this step."""
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
        """All that an identity has earned in the run, up to the last entry; None where that is nothing."""
        total = self._totals.get(identity)
        if total is None:
            return None
        return Credit(total.members, total.work, int(total.seconds), total.agreed, total.caught)
