"""Messages that bring a volunteer to where a replica is: its weights, or the latest Updates for those that return."""

from collections import deque
from typing import NamedTuple, final

from fedlearn.coordination.people.roster import Held
from fedlearn.es.layout import ParameterLayout
from fedlearn.es.snapshot import START
from fedlearn.es.update import Update
from fedlearn.tasks.holding import Holding
from fedlearn.wire.encoding.parcel import Parcel, pack
from fedlearn.wire.messages import Message, Start

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


def has_masks_of_all_steps(layout: ParameterLayout, n_blocks: int) -> bool:
    """True where a volunteer can replay steps: row masks follow from the data of each step, and it is sent only one
    block."""
    return not layout.is_masked or n_blocks < 2


@final
class RecentUpdates:
    """The latest Updates without a gap, fewer bytes than the weights that would be sent instead."""

    def __init__(self) -> None:
        self._kept: deque[_Kept] = deque()
        self._sent_bytes = 0
        self._held_bytes = 0

    def add(self, update: Update, digest: bytes, *, weights_bytes: int) -> Parcel:
        """Keeps the Update of a step; `digest` is that of the replica before it; gives its parcel."""
        if self._kept and update.step != self._kept[-1].update.step + 1:
            self._kept.clear()  # the weights were replaced by those of another step
            self._sent_bytes = self._held_bytes = 0
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


@final
class ReplicaMessages:
    """The messages of one replica, whose digest the caller knows; each is packed once for all who are sent it."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self._recent = RecentUpdates()
        self._snapshot: tuple[Held, Outgoing] | None = None

    @property
    def snapshot_bytes(self) -> int:
        """Bytes of the weights and of everything that travels with them."""
        replica = self._holding.replica
        return replica.weights.nbytes * (1 + len(replica.slots))

    def snapshot(self, digest: bytes) -> Outgoing:
        """A Snapshot of the replica."""
        # The step alone is no key: a relay has two states of a step whose weights were replaced.
        here = Held(self._holding.replica.step, digest)
        if self._snapshot is None or self._snapshot[0] != here:
            replica = self._holding.replica
            snapshot = replica.snapshot().condensed(replica.layout)
            self._snapshot = (here, (snapshot, pack(snapshot)))
        return self._snapshot[1]

    def missed(self, held: Held, digest: bytes) -> list[Outgoing] | None:
        """A Start and the Updates since a state of the replica; None where they are not known any more."""
        replica = self._holding.replica
        is_here = held == Held(replica.step, digest)
        updates = [] if is_here else self._recent.since(held.step, held.digest)
        if updates is None:
            return None
        start = Start(held.digest, held.step, replica.step, START in replica.slots)
        return [(start, pack(start)), *updates]

    def add(self, update: Update, digest: bytes) -> Parcel:
        """Keeps the Update of the replica's next step; gives its parcel."""
        self._snapshot = None
        return self._recent.add(update, digest, weights_bytes=self.snapshot_bytes)
