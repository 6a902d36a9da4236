"""The queue of messages that wait to be sent, and the order in which their frames leave."""

from collections import deque
from collections.abc import Iterator
from itertools import chain, takewhile
from typing import final

from fedlearn.es.update import Update
from fedlearn.wire.encoding.frames import CHUNK_BYTES, CONTROL_STREAM, HEADER_BYTES
from fedlearn.wire.encoding.parcel import PARTING, Parcel, stream_of
from fedlearn.wire.messages import Assignment
from fedlearn.wire.states import MessageType

_STEPS: frozenset[MessageType] = frozenset([Update, Assignment])


@final
class Outbox:
    """Three queues: control leaves first, then data in order, and a parting word last.

    The parcels are shared with other peers; an outbox only holds their places in its queues.

    Attributes:
        bytes_queued: payload bytes that `next_frame` has not given yet.
    """

    def __init__(self) -> None:
        self._control: deque[Parcel] = deque()
        self._data: deque[Parcel] = deque()
        self._parting: deque[Parcel] = deque()
        self._n_frames_gone = 0  # of the first data parcel; parcels of the other queues have one frame
        self.bytes_queued = 0

    @property
    def update_bytes(self) -> int:
        """Payload bytes of all Updates that wait, wholly or in part."""
        return sum(parcel.length_bytes for parcel in self._data if parcel.message_type is Update)

    @property
    def has_control(self) -> bool:
        """Whether a Hello, Ping or Pong waits."""
        return bool(self._control)

    @property
    def has_weights(self) -> bool:
        """Whether a Snapshot waits, wholly or in part."""
        return any(parcel.has_weights for parcel in self._data)

    def parcels(self) -> Iterator[Parcel]:
        """All parcels that wait, wholly or in part."""
        return chain(self._control, self._data, self._parting)

    def put(self, parcel: Parcel) -> None:
        """Queues one message; a parting word drops the data from the first Snapshot on."""
        if parcel.message_type in PARTING:
            self._parting.append(parcel)
            if self._n_frames_gone and self._data[0].has_weights:
                self._n_frames_gone = 0
            self._data = deque(takewhile(lambda queued: not queued.has_weights, self._data))
            waiting = sum(queued.length_bytes for queued in self.parcels())
            self.bytes_queued = waiting - self._n_frames_gone * CHUNK_BYTES
            return
        queue = self._control if stream_of(parcel.message_type) == CONTROL_STREAM else self._data
        queue.append(parcel)
        self.bytes_queued += parcel.length_bytes

    def drop_steps(self) -> None:
        """Drops Updates and Assignments of which nothing has left: the weights that follow contain their steps."""
        begun = 1 if self._n_frames_gone else 0
        kept = [parcel for i, parcel in enumerate(self._data) if i < begun or parcel.message_type not in _STEPS]
        self.bytes_queued -= sum(parcel.length_bytes for parcel in self._data)
        self.bytes_queued += sum(parcel.length_bytes for parcel in kept)
        self._data = deque(kept)

    def next_frame(self) -> bytes:
        """The frame that leaves next; empty if nothing waits."""
        if self._control:
            frame = self._control.popleft().frame(0)
        elif self._data:
            parcel = self._data[0]
            frame = parcel.frame(self._n_frames_gone)
            self._n_frames_gone += 1
            if self._n_frames_gone == parcel.n_frames:
                self._data.popleft()
                self._n_frames_gone = 0
        elif self._parting:
            frame = self._parting.popleft().frame(0)
        else:
            return b""
        self.bytes_queued -= len(frame) - HEADER_BYTES
        return frame

    def clear(self) -> None:
        """Drops everything: the peer has parted."""
        for queue in (self._control, self._data, self._parting):
            queue.clear()
        self._n_frames_gone = self.bytes_queued = 0
