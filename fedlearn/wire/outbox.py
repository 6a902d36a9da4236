"""What waits to be sent, and in which order its frames leave."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import final

from fedlearn.es.snapshot import Snapshot
from fedlearn.wire.frames import CONTROL_STREAM, DATA_STREAM, HEADER_BYTES, split
from fedlearn.wire.messages import Farewell, Goodbye, Hello, Ping, Pong
from fedlearn.wire.states import MessageType

PARTING: frozenset[MessageType] = frozenset([Goodbye, Farewell])
_CONTROL: frozenset[MessageType] = frozenset([Hello, Ping, Pong, Goodbye, Farewell])


def stream_of(message_type: MessageType) -> int:
    """Control overtakes data between two chunks; Hello is control, so that no Ping overtakes it."""
    return CONTROL_STREAM if message_type in _CONTROL else DATA_STREAM


@final
@dataclass(slots=True)
class _Outgoing:
    message_type: MessageType
    frames: Iterator[bytes]
    bytes_left: int


@final
class Outbox:
    """Three queues: control goes first, then data in order, a parting word last."""

    def __init__(self) -> None:
        self._control: deque[_Outgoing] = deque()
        self._data: deque[_Outgoing] = deque()
        self._parting: deque[_Outgoing] = deque()

    @property
    def has_control(self) -> bool:
        """Whether a Hello, Ping or Pong waits."""
        return bool(self._control)

    @property
    def bytes_queued(self) -> int:
        """Payload bytes that `next_frame` has not given yet."""
        queues = (self._control, self._data, self._parting)
        return sum(outgoing.bytes_left for queue in queues for outgoing in queue)

    def put(self, message_type: MessageType, payload: bytes) -> None:
        """Queues one encoded message; a parting word cuts the data from the first Snapshot on."""
        tag = message_type.__struct_config__.tag
        assert isinstance(tag, int)
        stream = stream_of(message_type)
        outgoing = _Outgoing(message_type, split(payload, message_type=tag, stream=stream), len(payload))
        if message_type in PARTING:
            self._parting.append(outgoing)
            self._data = deque(takewhile(lambda queued: queued.message_type is not Snapshot, self._data))
        elif stream == CONTROL_STREAM:
            self._control.append(outgoing)
        else:
            self._data.append(outgoing)

    def next_frame(self) -> bytes:
        """The frame that leaves next; empty if none waits."""
        for queue in (self._control, self._data, self._parting):
            if queue:
                frame = next(queue[0].frames)
                queue[0].bytes_left -= len(frame) - HEADER_BYTES
                if queue[0].bytes_left == 0:
                    queue.popleft()
                return frame
        return b""

    def clear(self) -> None:
        """Forgets everything: the peer has parted."""
        for queue in (self._control, self._data, self._parting):
            queue.clear()
