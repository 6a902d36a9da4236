"""Limits on the messages of a client: few before its first lease, and afterwards what its leases ask for.

Source: the token bucket of J. Turner, "New directions in communications", IEEE Communications Magazine 24 (1986).
"""

from typing import final

from fedlearn.wire.errors import FloodError
from fedlearn.wire.limits import MAX_SMALL_BYTES

STRANGERS_MESSAGES = 20.0
"""Messages that a client may send at once before its first lease: Hello, Proof, Ready, and a few signs of life."""

MESSAGES = 200.0
"""Messages that it may send at once after its first lease."""

MESSAGES_PER_S = 10.0
"""Messages a second, of any type; the protocol asks for a Result a second and a Ping every ten seconds."""

MESSAGES_PER_LEASE = 8.0
"""Messages that each lease adds, so that steps may be as short as the server likes."""

BYTES = 16.0 * MAX_SMALL_BYTES
BYTES_PER_S = 4.0 * MAX_SMALL_BYTES
RESULTS = 4.0
"""The largest Results that may come at once, and in a second: a client sends one every quarter of a second. Each lease
adds half as many."""


@final
class MessageQuota:
    """A token bucket for messages and one for bytes; both fill with time and with each lease."""

    def __init__(self, now: float) -> None:
        self._max_messages = self._messages = STRANGERS_MESSAGES
        self._max_bytes = self._bytes = BYTES
        self._bytes_per_s = BYTES_PER_S
        self._at = now

    def lease(self, result_bytes: int) -> None:
        """Adds what a lease asks for; `result_bytes` is the length of its largest Result."""
        self._max_messages = MESSAGES
        self._max_bytes = max(self._max_bytes, BYTES + RESULTS * result_bytes)
        self._bytes_per_s = max(self._bytes_per_s, BYTES_PER_S + RESULTS * result_bytes)
        self._messages = min(self._messages + MESSAGES_PER_LEASE, self._max_messages)
        self._bytes = min(self._bytes + BYTES_PER_S + RESULTS / 2 * result_bytes, self._max_bytes)

    def lease_seat(self, n_messages: int, n_bytes: int) -> None:
        """Adds to the quota of a lease so many Activations of so many bytes together, and as many again that an earlier
        step left over."""
        self._max_messages = max(self._max_messages, MESSAGES + 2.0 * n_messages)
        self._max_bytes = max(self._max_bytes, BYTES + 2.0 * n_bytes)
        self._messages = min(self._messages + n_messages, self._max_messages)
        self._bytes = min(self._bytes + n_bytes, self._max_bytes)

    def spend(self, n_messages: int, n_bytes: int, now: float) -> None:
        """Takes messages and bytes that have arrived out of the buckets; `now` is in seconds.

        Raises:
            FloodError: a bucket holds fewer.
        """
        passed_s = now - self._at
        if passed_s > 0.0:
            self._at = now
            self._messages = min(self._messages + passed_s * MESSAGES_PER_S, self._max_messages)
            self._bytes = min(self._bytes + passed_s * self._bytes_per_s, self._max_bytes)
        self._messages -= n_messages
        self._bytes -= n_bytes
        if self._messages < 0.0:
            raise FloodError(f"messages: expected at most {MESSAGES_PER_S:g} a second and those of a lease, got more")
        if self._bytes < 0.0:
            raise FloodError(f"bytes: expected at most {self._bytes_per_s:g} a second, got more")
