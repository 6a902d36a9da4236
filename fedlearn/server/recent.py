"""The Updates of late, kept for whoever was cut off a moment ago and comes back."""

from collections import deque
from typing import NamedTuple, final

from fedlearn.es.update import Update
from fedlearn.wire.messages import Message
from fedlearn.wire.parcel import Parcel, pack

Outgoing = tuple[Message, Parcel]
"""A message, and the parcel that everybody is sent."""

MAX_BYTES = 64 * 1024 * 1024
"""Of all that are kept, however large the weights."""

_OBJECT_BYTES = 1024
"""Of an Update without its arrays."""


class _Kept(NamedTuple):
    digest: bytes
    """Of the replica that the step begins with."""
    update: Update
    parcel: Parcel

    @property
    def length_bytes(self) -> int:
        """In memory: the arrays, and the payload that is made of them."""
        return 2 * self.parcel.length_bytes + _OBJECT_BYTES


@final
class RecentUpdates:
    """The last of them, in a row; of no more bytes than weights would be sent instead."""

    def __init__(self) -> None:
        self._kept: deque[_Kept] = deque()
        self._sent_bytes = 0
        self._held_bytes = 0

    def add(self, update: Update, digest: bytes, *, weights_bytes: int) -> Parcel:
        """Keeps the Update of a step that begins with this digest; gives its parcel."""
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
        """From this step on, where it began with this digest; None where that is not known any more."""
        place = step - self._kept[0].update.step if self._kept else -1
        if not 0 <= place < len(self._kept) or self._kept[place].digest != digest:
            return None
        return [(kept.update, kept.parcel) for kept in list(self._kept)[place:]]
