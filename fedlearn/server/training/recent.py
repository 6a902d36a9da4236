"""The latest Updates, kept for volunteers that were disconnected a moment ago and return."""

from collections import deque
from typing import NamedTuple, final

from fedlearn.es.update import Update
from fedlearn.wire.encoding.parcel import Parcel, pack
from fedlearn.wire.messages import Message

Outgoing = tuple[Message, Parcel]
"""A message and its parcel, which is made once for all who are sent it."""

MAX_BYTES = 64 * 1024 * 1024
"""Bytes of all Updates that are kept, at most, however large the weights are."""

_OBJECT_BYTES = 1024
"""Bytes of an Update without its arrays."""


class _Kept(NamedTuple):
    digest: bytes
    """Digest of the replica before the step."""
    update: Update
    parcel: Parcel

    @property
    def length_bytes(self) -> int:
        """Bytes in memory: the arrays, and the encoded payload."""
        return 2 * self.parcel.length_bytes + _OBJECT_BYTES


@final
class RecentUpdates:
    """The latest Updates without a gap, fewer bytes than the weights that would be sent instead."""

    def __init__(self) -> None:
        self._kept: deque[_Kept] = deque()
        self._sent_bytes = 0
        self._held_bytes = 0

    def add(self, update: Update, digest: bytes, *, weights_bytes: int) -> Parcel:
        """Keeps the Update of a step; `digest` is that of the replica before it; gives its parcel."""
        kept = _Kept(digest, update, pack(update))
        self._kept.append(kept)
        self._sent_bytes += kept.parcel.length_bytes
        self._held_bytes += kept.length_bytes
        while self._kept and (self._sent_bytes >= weights_bytes or self._held_bytes > MAX_BYTES):
            gone = self._kept.popleft()
            self._sent_bytes -= gone.parcel.length_bytes
            self._held_bytes -= gone.length_bytes
        return kept.parcel

    def since(self, step: int, digest: bytes) -> list[Outgoing] | None:
        """The Updates from a step on, if the replica had this digest before it; None where that is not known any
        more."""
        place = step - self._kept[0].update.step if self._kept else -1
        if not 0 <= place < len(self._kept) or self._kept[place].digest != digest:
            return None
        return [(kept.update, kept.parcel) for kept in list(self._kept)[place:]]
