"""The networks as which addresses are counted, limited or refused."""

import ipaddress

LOOPBACK = "loopback"
_IPV6_PREFIX = 64
"""Bits of an address that a provider gives to one customer at least: all behind them counts as one address."""


def network_of(address: str) -> str:
    """The network of an address: itself, its /64 of IPv6, or LOOPBACK; a text that is no address stands for itself."""
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
