"""How often somebody may do something: a token bucket for each, in a table of bounded size."""

import ipaddress
from collections import OrderedDict
from typing import final

MAX_ENTRIES = 10_000
"""About two MB; of more, those who did nothing for longest are forgotten."""

LOOPBACK = "loopback"
_IPV6_PREFIX = 64
"""What one customer of a provider has at least: all of it counts as one address."""


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


def network_of(address: str) -> str:
    """Whom an address counts for: itself, its /64 of IPv6, or LOOPBACK; what is no address stands for itself."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is None:
            prefix = ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False)
            return LOOPBACK if parsed.is_loopback else str(prefix)
        parsed = parsed.ipv4_mapped
    return LOOPBACK if parsed.is_loopback else str(parsed)
