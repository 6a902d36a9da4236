"""How often somebody may do something: a token bucket for each key, in a table of bounded size."""

import ipaddress
from collections import OrderedDict
from typing import final

MAX_ENTRIES = 10_000
"""Keys in the table, about two MB; beyond, those that did nothing for longest are forgotten."""

LOOPBACK = "loopback"
_IPV6_PREFIX = 64
"""Bits of an IPv6 address that a provider gives to one customer at least: they count as one address."""


@final
class RateLimit:
    """Allows each key `per_minute` times a minute, and as many at once after a pause; 0: no limit."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What each key has left, and since when; the keys that took last are last."""

    def take(self, key: str, now: float) -> bool:
        """Whether the key may do it now; if so, it has one less left."""
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


def network_of(address: str) -> str:
    """What an address counts as: itself, its /64 of IPv6, or LOOPBACK; a text that is no address counts as itself."""
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
