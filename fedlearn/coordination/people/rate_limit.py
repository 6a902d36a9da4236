"""Limits how often something may be done: a token bucket for each key, in a table of bounded size."""

from collections import OrderedDict
from typing import final

MAX_ENTRIES = 10_000
"""Keys in the table, about two MB; beyond, the keys that were idle for longest are forgotten."""


@final
class RateLimit:
    """Allows each key `per_minute` actions a minute, and as many at once after a pause; 0: no limit."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Remaining tokens of each key, and the time of that count; the keys that took last are last."""

    def take(self, key: str, now: float) -> bool:
        """Takes a token of the key, if it has one, and says whether it had."""
        if self._per_minute == 0:
            return True
        left, since = self._left.pop(key, (float(self._per_minute), now))
        left = min(left + (now - since) * self._per_minute / 60.0, float(self._per_minute))
        has_one = left >= 1.0
        self._left[key] = (left - 1.0 if has_one else left, now)
        if len(self._left) > MAX_ENTRIES:
            self._left.popitem(last=False)
        return has_one

    def __len__(self) -> int:
        """Number of keys in the table."""
        return len(self._left)
