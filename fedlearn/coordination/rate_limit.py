"""How often somebody may do something: a token bucket for each, in a table of bounded size."""

from collections import OrderedDict
from typing import final

MAX_ENTRIES = 10_000
"""About two MB; of more, those who did nothing for longest are forgotten."""


@final
class RateLimit:
    """So many a minute for each key, and as many at once after a rest; 0 a minute: no limit."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What each key has left, and since when; those who took last are last."""

    def take(self, key: str, now: float) -> bool:
        """Whether the key has one left, which it then has no more."""
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
        """Keys in the table."""
        return len(self._left)
