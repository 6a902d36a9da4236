"""One side of a conversation: messages in, bytes out and the other way round; no socket, no clock.

A shell reads bytes into `receive_data`, writes what `data_to_send` gives and calls `tick` once a second;
`now` is any clock in seconds that never goes back.

Source: the design of h11 (https://h11.readthedocs.io): a protocol as a value, I/O left to the caller.
"""

from typing import Literal, cast, final, get_args

from fedlearn.wire import limits
from fedlearn.wire.assembly import Assembly
from fedlearn.wire.codec import decode, encode
from fedlearn.wire.errors import LocalProtocolError, RemoteProtocolError
from fedlearn.wire.frames import CONTROL_STREAM, Frame, FrameParser
from fedlearn.wire.messages import FromClient, FromServer, Message, Ping, Pong
from fedlearn.wire.outbox import PARTING, Outbox, stream_of
from fedlearn.wire.states import MessageType, State, next_state

_FROM_CLIENT: dict[int, MessageType] = {kind.__struct_config__.tag: kind for kind in get_args(FromClient)}
_FROM_SERVER: dict[int, MessageType] = {kind.__struct_config__.tag: kind for kind in get_args(FromServer)}


@final
class Connection:
    """The protocol as seen by one side.

    Attributes:
        state: where the conversation stands, as seen from here.
        bytes_in, bytes_out: bytes given to `receive_data`, and by `data_to_send`.
    """

    def __init__(
        self,
        role: Literal["client", "server"],
        *,
        now: float,
        max_snapshot_bytes: int = limits.DEFAULT_MAX_SNAPSHOT_BYTES,
    ) -> None:
        ours, theirs = (_FROM_CLIENT, _FROM_SERVER) if role == "client" else (_FROM_SERVER, _FROM_CLIENT)
        self._ours = frozenset(ours.values())
        self._theirs = theirs
        self._max_snapshot_bytes = max_snapshot_bytes
        self.state = State.OPENING
        self.bytes_in = 0
        self.bytes_out = 0
        self._outbox = Outbox()
        self._parser = FrameParser()
        self._assembly: Assembly | None = None
        self._frame_deadline: float | None = None
        self._we_parted = False
        self._they_parted = False
        self._last_received = now
        self._last_sent = now
        self._bytes_out_at_last_tick = 0

    @property
    def is_over(self) -> bool:
        """Whether a parting word was received, or ours was sent and nothing waits: time to close."""
        return self._they_parted or (self._we_parted and self.bytes_queued == 0)

    @property
    def has_parted(self) -> bool:
        """Whether either side said its parting word: nothing more may be sent."""
        return self._we_parted or self._they_parted

    @property
    def bytes_queued(self) -> int:
        """Payload bytes not yet given by `data_to_send`; grows without bound if the peer stops reading."""
        return self._outbox.bytes_queued

    def send(self, message: Message, payload: bytes | None = None) -> None:
        """Queues one message; `payload` is its encoding where that was made before, elsewhere or for another peer.

        A Goodbye or Farewell goes behind what was queued before it, except that a Snapshot, begun or not, and
        everything behind that Snapshot is cut.

        Raises:
            LocalProtocolError: not legal in this state, too large or not encodable; nothing was queued.
        """
        message_type = type(message)
        state = next_state(self.state, message_type)
        if message_type not in self._ours or state is None or self.has_parted:
            situation = "one side has parted" if self.has_parted else self.state.value
            raise LocalProtocolError(
                f"{message_type.__name__}: may not be sent when {situation}; see docs/protocol.md, States"
            )
        payload = encode(message) if payload is None else payload
        max_bytes = self._max_bytes(message_type)
        if len(payload) > max_bytes:
            raise LocalProtocolError(
                f"{message_type.__name__}: expected at most {max_bytes} bytes, got {len(payload)}; send less"
            )
        self._outbox.put(message_type, payload)
        self.state = state
        self._we_parted = message_type in PARTING

    def data_to_send(self, max_bytes: int = 256 * 1024) -> bytes:
        """The next bytes for the peer: whole frames, the last may go beyond `max_bytes`; empty if none."""
        frames: list[bytes] = []
        length = 0
        while length < max_bytes and (frame := self._outbox.next_frame()):
            frames.append(frame)
            length += len(frame)
        self.bytes_out += length
        return b"".join(frames)

    def receive_data(self, data: bytes, now: float) -> list[Message]:
        """The messages that these bytes complete; a Ping is answered and, like a Pong, not shown.

        Raises:
            RemoteProtocolError: with the reason; close the connection, if need be after a Farewell.
        """
        self.bytes_in += len(data)
        self._last_received = now
        messages: list[Message] = []
        for frame in self._parser.feed(data):
            self._frame_deadline = None
            message = self._receive_frame(frame, now)
            if isinstance(message, Ping) and self._can_chat():
                self.send(Pong())
            elif message is not None and not isinstance(message, Ping | Pong):
                messages.append(message)
        if self._frame_deadline is None and self._parser.is_inside_frame:
            self._frame_deadline = now + limits.FRAME_LIMIT_S
        return messages

    def tick(self, now: float) -> None:
        """Queues a Ping if nothing was sent for long.

        Raises:
            RemoteProtocolError: the peer has been silent for too long, or too slow with what it began.
        """
        if now - self._last_received >= limits.SILENCE_LIMIT_S:
            raise RemoteProtocolError(f"peer: expected a sign of life, got none for {limits.SILENCE_LIMIT_S:g} s")
        if self._frame_deadline is not None and now >= self._frame_deadline:
            raise RemoteProtocolError(f"frame: expected its end within {limits.FRAME_LIMIT_S:g} s, got a part of it")
        if self._assembly is not None and now >= self._assembly.deadline:
            raise RemoteProtocolError(
                f"{self._assembly.message_type.__name__}: expected its last chunk by now, got a part of it; "
                "the line is too slow"
            )
        if self.bytes_out != self._bytes_out_at_last_tick:
            self._bytes_out_at_last_tick = self.bytes_out
            self._last_sent = now
        elif now - self._last_sent >= limits.PING_AFTER_S and self._can_chat():
            self.send(Ping())
            self._last_sent = now

    def _receive_frame(self, frame: Frame, now: float) -> Message | None:
        message_type = self._theirs.get(frame.message_type)
        if message_type is None:
            raise RemoteProtocolError(
                f"message type: expected one of {sorted(self._theirs)}, got {frame.message_type}; "
                "is this an older version, or the wrong side?"
            )
        state = next_state(self.state, message_type)
        if state is None or self._they_parted:
            situation = "the sender has parted" if self._they_parted else self.state.value
            raise RemoteProtocolError(
                f"{message_type.__name__}: may not come when {situation}; see docs/protocol.md, States"
            )
        if frame.stream != stream_of(message_type):
            raise RemoteProtocolError(
                f"{message_type.__name__}: expected stream {stream_of(message_type)}, got {frame.stream}"
            )
        payload = self._assemble(message_type, frame, now)
        if payload is None:
            return None
        message = cast(Message, decode(payload, message_type))
        self.state = state
        if message_type in PARTING:
            self._they_parted = True
            self._outbox.clear()
        return message

    def _assemble(self, message_type: MessageType, frame: Frame, now: float) -> bytearray | None:
        """The payload if this frame completes it; only data is ever unfinished, control takes one chunk."""
        is_control = frame.stream == CONTROL_STREAM
        assembly = None if is_control else self._assembly
        if assembly is None:
            assembly = Assembly(message_type, frame, max_bytes=self._max_bytes(message_type), now=now)
        payload = assembly.add(message_type, frame)
        if not is_control:
            self._assembly = assembly if payload is None else None
        return payload

    def _max_bytes(self, message_type: MessageType) -> int:
        return limits.max_message_bytes(message_type, max_snapshot_bytes=self._max_snapshot_bytes)

    def _can_chat(self) -> bool:
        """Whether a Ping or Pong is legal and none waits: a peer that asks without reading fills no queue."""
        return not (self.has_parted or self._outbox.has_control or self.state is State.OPENING)
