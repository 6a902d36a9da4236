"""A message that is put together from its chunks."""

from typing import final

from fedlearn.wire.encoding.frames import CHUNK_BYTES, Frame, n_chunks
from fedlearn.wire.errors import RemoteProtocolError
from fedlearn.wire.limits import message_limit_s
from fedlearn.wire.states import MessageType


@final
class Assembly:
    """Collects the chunks of one message; memory grows with what has arrived, never with what was announced.

    Raises:
        RemoteProtocolError: the first chunk already announces more than `max_bytes`.
    """

    def __init__(self, message_type: MessageType, first: Frame, *, max_bytes: int, now: float) -> None:
        if first.n_chunks > n_chunks(max_bytes):
            raise RemoteProtocolError(
                f"{message_type.__name__}: expected at most {max_bytes} bytes, got {first.n_chunks} chunks; "
                "the sender must send less"
            )
        self.message_type = message_type
        self.deadline = now + message_limit_s(first.n_chunks * CHUNK_BYTES)
        self._count = first.n_chunks
        self._max_bytes = max_bytes
        self._n_arrived = 0
        self._payload = bytearray()
        self.headers: list[bytes] = []
        """Headers of the chunks, as they came."""

    @property
    def bytes_held(self) -> int:
        """Bytes that have arrived."""
        return len(self._payload)

    @property
    def bytes_announced(self) -> int:
        """Bytes that the whole message has at most."""
        return self._count * CHUNK_BYTES

    def add(self, message_type: MessageType, frame: Frame) -> bytearray | None:
        """The whole payload if this was its last chunk, else None.

        Raises:
            RemoteProtocolError: this is not the chunk that is due, or the message is longer than `max_bytes`.
        """
        expected = (self.message_type, self._n_arrived, self._count)
        if (message_type, frame.chunk, frame.n_chunks) != expected:
            raise RemoteProtocolError(
                f"chunk: expected {self._n_arrived} of {self._count} of {self.message_type.__name__}, "
                f"got {frame.chunk} of {frame.n_chunks} of {message_type.__name__}"
            )
        if len(self._payload) + len(frame.payload) > self._max_bytes:
            raise RemoteProtocolError(
                f"{message_type.__name__}: expected at most {self._max_bytes} bytes, got more; "
                "the sender must send less"
            )
        self._n_arrived += 1
        self._payload += frame.payload
        self.headers.append(bytes(frame.header))
        return self._payload if self._n_arrived == self._count else None
