"""A message ready to leave: its payload is cut into frames once for all who are sent it."""

from collections.abc import Sequence
from typing import final

import msgspec

from fedlearn.es.snapshot import Snapshot
from fedlearn.wire.encoding.codec import encode
from fedlearn.wire.encoding.frames import CHUNK_BYTES, CONTROL_STREAM, DATA_STREAM, headers
from fedlearn.wire.messages import Activations, Farewell, Goodbye, Hello, Ping, Pong
from fedlearn.wire.states import MessageType

PARTING: frozenset[MessageType] = frozenset([Goodbye, Farewell])
_CAME_IN = "parcel"
_CONTROL: frozenset[MessageType] = frozenset([Hello, Ping, Pong, Goodbye, Farewell])


def stream_of(message_type: MessageType) -> int:
    """Control, which overtakes data between two chunks, or data; Hello is control, so that no Ping overtakes it."""
    return CONTROL_STREAM if message_type in _CONTROL else DATA_STREAM


@final
class Parcel:
    """The frames of one encoded message; it never changes, so that any number of peers may share it.

    A message of several frames is kept as payload and headers: each frame is made when it leaves.
    """

    __slots__ = ("_headers", "_payload", "_view", "has_weights", "length_bytes", "message_type", "n_frames")

    def __init__(
        self, message_type: MessageType, payload: bytes | bytearray | memoryview, came_in: Sequence[bytes] = ()
    ) -> None:
        """`came_in`: the headers of its frames, where it was received; they are not made again then."""
        tag = message_type.__struct_config__.tag
        assert isinstance(tag, int)
        self.message_type = message_type
        self.has_weights = message_type is Snapshot
        self.length_bytes = len(payload)
        self._headers = came_in or headers(payload, message_type=tag, stream=stream_of(message_type))
        self.n_frames = len(self._headers)
        self._payload = payload if self.n_frames > 1 else self._headers[0] + payload
        self._view = memoryview(self._payload)

    def frame(self, index: int) -> bytes:
        """The whole frame, header and chunk, of the chunk with this index."""
        if self.n_frames == 1:
            return bytes(self._payload)
        return self._headers[index] + self._view[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]


def pack(message: msgspec.Struct) -> Parcel:
    """The parcel of one message; of Activations that are passed on, the one that they came in.

    Raises:
        LocalProtocolError: the message cannot be encoded.
    """
    if isinstance(message, Activations) and (came_in := vars(message).pop(_CAME_IN, None)) is not None:
        assert isinstance(came_in, Parcel)
        return came_in
    return Parcel(type(message), encode(message))


def keep(message: Activations, parcel: Parcel) -> None:
    """Remembers which parcel a message came in, until it is packed: so it is passed on without being encoded again."""
    vars(message)[_CAME_IN] = parcel
