"""Addresses that are refused for a while, because a peer there has flooded."""

from typing import final

import msgspec

from fedlearn.wire.networks import LOOPBACK, network_of

FIRST_S = 60.0
LONGEST_S = 3600.0
"""The longest refusal in seconds: each lasts twice as long as the last. Refusals begin anew after this time without a
flood."""

MAX_NETWORKS = 10_000
"""Networks remembered; beyond, the oldest are forgotten."""

TURN_S = 0.05
LONGEST_TURN_S = 1.0
"""Seconds between two connections from this machine after a flood, twice as many after each further one. It is not
refused, since the server's own volunteers have the same address."""


class _Refusal(msgspec.Struct):
    until: float
    length_s: float
    next_turn: float


@final
class Refusals:
    """The addresses that are refused, and until when; `now` is any clock in seconds that never goes back."""

    def __init__(self) -> None:
        self._refusals: dict[str, _Refusal] = {}

    def punish(self, address: str, now: float) -> None:
        """Refuses an address for a minute, or for twice as long as before."""
        network = network_of(address)
        past = self._refusals.pop(network, None)
        is_recent = past is not None and now < past.until + LONGEST_S
        length_s = min(2.0 * past.length_s, LONGEST_S) if past is not None and is_recent else FIRST_S
        self._refusals[network] = _Refusal(now + length_s, length_s, now)
        if len(self._refusals) > MAX_NETWORKS:
            del self._refusals[next(iter(self._refusals))]

    def seconds_left(self, address: str, now: float) -> float:
        """Seconds for which an address is still refused; 0 where it is not, and for this machine."""
        network = network_of(address)
        refusal = self._refusals.get(network)
        return max(refusal.until - now, 0.0) if refusal is not None and network != LOOPBACK else 0.0

    def turn_s(self, address: str, now: float) -> float:
        """Seconds until a new connection from this machine is accepted; 0 unless a peer there has flooded."""
        refusal = self._refusals.get(network_of(address))
        if refusal is None or now >= refusal.until:
            return 0.0
        turn_s = min(TURN_S * refusal.length_s / FIRST_S, LONGEST_TURN_S)
        refusal.next_turn = max(refusal.next_turn, now) + turn_s
        return refusal.next_turn - now
