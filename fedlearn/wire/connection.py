"""One side of a conversation, without a socket or a clock: bytes in, messages out, and the other way round.

A shell gives the bytes that it reads to `receive_data`, writes what `data_to_send` gives, and calls `tick` once a
second; `now` is any clock in seconds that never goes back.

Source: the design of h11 (https://h11.readthedocs.io): the protocol is a value, and I/O is left to the caller.
"""

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Literal, cast, final, get_args

from fedlearn.es.sums.estimate import MAX_EXACT_BYTES, exact_width
from fedlearn.wire import limits
from fedlearn.wire.encoding.arrays import twin_of
from fedlearn.wire.encoding.assembly import Assembly
from fedlearn.wire.encoding.codec import decode
from fedlearn.wire.encoding.frames import CHUNK_BYTES, CONTROL_STREAM, HEADER_BYTES, Frame, FrameParser, tag_of
from fedlearn.wire.encoding.parcel import PARTING, Parcel, keep, pack, stream_of
from fedlearn.wire.errors import LocalProtocolError, RemoteProtocolError
from fedlearn.wire.messages import (
    MAX_REASON_LENGTH,
    PROTOCOL_VERSION,
    Activations,
    Assignment,
    Farewell,
    FarewellKind,
    FromClient,
    FromNextSeat,
    FromSeatBefore,
    FromServer,
    Goodbye,
    Hello,
    Message,
    Ping,
    Pong,
    Ready,
    Result,
    Resync,
    Seat,
)
from fedlearn.wire.outbox import Outbox
from fedlearn.wire.quota import MessageQuota
from fedlearn.wire.states import MessageType, State, next_state
from fedlearn.wire.tally import Tally
from fedlearn.wire.versions import version_mismatch, version_said


def _by_tag(messages: UnionType) -> dict[int, MessageType]:
    for kind in get_args(messages):
        twin_of(kind)  # raises here, and not at a message's arrival, where a field's type is none that travels
    return {kind.__struct_config__.tag: kind for kind in get_args(messages)}


Role = Literal["client", "server", "seat before", "next seat"]
"""The sides of a conversation; the last two are the ends of a connection between two seats, of which the next one is
called."""

_SAID_BY: Mapping[Role, Mapping[int, MessageType]] = {
    "client": _by_tag(FromClient),
    "server": _by_tag(FromServer),
    "seat before": _by_tag(FromSeatBefore),
    "next seat": _by_tag(FromNextSeat),
}
_OTHER: Mapping[Role, Role] = {
    "client": "server",
    "server": "client",
    "seat before": "next seat",
    "next seat": "seat before",
}


@final
class Connection:
    """The protocol as seen by one side.

    A server accepts from a client what its leases ask for, and little else; a seat, from the one before it,
    `activations_bytes` at a time once that has signed. `estimate_bytes` is the greatest length of a Result's estimate,
    where it has one, and `moments_bytes` that of a group's moments; a `tally` counts what the bytes are.

    Attributes:
        state: where the conversation stands, as seen from here.
        bytes_in, bytes_out: bytes given to `receive_data`, and by `data_to_send`.
    """

    def __init__(
        self,
        role: Role,
        *,
        now: float,
        max_snapshot_bytes: int = limits.DEFAULT_MAX_SNAPSHOT_BYTES,
        estimate_bytes: int = limits.LARGEST_ESTIMATE_BYTES,
        moments_bytes: int = 0,
        activations_bytes: int = 0,
        tally: Tally | None = None,
    ) -> None:
        self._ours = frozenset(_SAID_BY[role].values())
        self._theirs = _SAID_BY[_OTHER[role]]
        self._is_server = role in ("server", "next seat")
        self._activations_bytes = activations_bytes
        self._tally = tally
        self._max_snapshot_bytes = max_snapshot_bytes
        self._estimate_bytes = estimate_bytes
        self._moments_bytes = moments_bytes
        self._result_bytes = limits.MAX_SMALL_BYTES
        self._seat: Seat | None = None
        self._allowance = MessageQuota(now)
        self.state = State.OPENING
        self.bytes_in = 0
        self.bytes_out = 0
        self._outbox = Outbox()
        self._parser = FrameParser(max_payload_bytes=self._result_bytes if self._is_server else CHUNK_BYTES)
        self._assembly: Assembly | None = None
        self._frame_deadline: float | None = None
        self._we_parted = False
        self._they_parted = False
        self._opened_at = now
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

    @property
    def update_bytes_queued(self) -> int:
        """Bytes of the Updates among them; 0 unless the peer has its weights."""
        return self._outbox.update_bytes if self.state is State.ACTIVE else 0

    @property
    def bytes_held(self) -> int:
        """Bytes of the frame and the message that have begun to arrive and are not complete."""
        return self._parser.bytes_held + (self._assembly.bytes_held if self._assembly is not None else 0)

    @property
    def arriving(self) -> tuple[int, int] | None:
        """Bytes here, and at most in all, of the message that has begun to arrive; None where there is none."""
        return None if self._assembly is None else (self._assembly.bytes_held, self._assembly.bytes_announced)

    def parcels(self) -> Iterator[Parcel]:
        """The messages that wait to be sent, in parcels that other peers may share."""
        return self._outbox.parcels()

    def send(self, message: Message, parcel: Parcel | None = None) -> None:
        """Queues one message; give its `parcel` where it has been packed before, elsewhere or for another peer.

        A Goodbye or Farewell is queued behind what waits, but drops a Snapshot, begun or not, and everything behind it.
        A Resync replaces the Updates and Assignments of which nothing has left.

        Raises:
            LocalProtocolError: the message is not legal in this state, too large or not encodable; nothing was queued.
        """
        message_type = type(message)
        state = next_state(self.state, message_type)
        if message_type not in self._ours or state is None or self.has_parted:
            situation = "one side has parted" if self.has_parted else self.state.value
            raise LocalProtocolError(
                f"{message_type.__name__}: may not be sent when {situation}; see docs/protocol.md, States"
            )
        parcel = pack(message) if parcel is None else parcel
        max_bytes = limits.max_message_bytes(message_type, max_snapshot_bytes=self._max_snapshot_bytes)
        if parcel.length_bytes > max_bytes:
            raise LocalProtocolError(
                f"{message_type.__name__}: expected at most {max_bytes} bytes, got {parcel.length_bytes}; send less"
            )
        if message_type is Resync:
            self._outbox.drop_steps()
        self._outbox.put(parcel)
        if isinstance(message, Seat):
            self._seat = message
        elif isinstance(message, Assignment):
            self._lease(message)
        self.state = state
        self._we_parted = message_type in PARTING

    def data_to_send(self, max_bytes: int = 256 * 1024) -> bytes:
        """The next bytes for the peer: whole frames, the last of which may exceed `max_bytes`; empty if none waits."""
        frames: list[bytes] = []
        length = 0
        while length < max_bytes and (frame := self._outbox.next_frame()):
            frames.append(frame)
            length += len(frame)
            if self._tally is not None:
                self._tally.send(tag_of(frame), len(frame))
        self.bytes_out += length
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def last_word(self, kind: FarewellKind, reason: str) -> bytes:
        """The frame of a parting word to a peer that is cut off, in any state; what waited is dropped.

        A client has no `kind`. It is empty where a client has not said Hello, and where either side has parted.
        """
        self._outbox.clear()
        if self.has_parted or not (self._is_server or next_state(self.state, Goodbye)):
            return b""
        printable = "".join(c if c.isprintable() else "?" for c in reason[:MAX_REASON_LENGTH])
        frame = pack(Farewell(kind, printable) if self._is_server else Goodbye(printable)).frame(0)
        self._we_parted = True
        self.bytes_out += len(frame)
        return frame

    def forget(self) -> None:
        """Frees what was held for a peer that is gone."""
        self._outbox.clear()
        self._assembly = None
        self._parser = FrameParser()

    def receive_data(self, data: bytes, now: float) -> list[Message]:
        """The messages that these bytes complete, without Pings, which are answered, and Pongs.

        Raises:
            RemoteProtocolError: the peer broke a rule; close the connection, after a `last_word` where that is useful.
        """
        self.bytes_in += len(data)
        self._last_received = now
        messages: list[Message] = []
        for frame in self._parser.feed(data):
            self._frame_deadline = None
            if self._tally is not None:
                self._tally.receive(frame.message_type, HEADER_BYTES + len(frame.payload))
            if self._is_server and self.state is not State.LINKED:
                self._allowance.spend(frame.chunk == 0, HEADER_BYTES + len(frame.payload), now)
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
            RemoteProtocolError: the peer has been silent for too long, or is too slow with what it began.
        """
        if now - self._last_received >= limits.SILENCE_LIMIT_S and not self._may_be_loading(now):
            raise RemoteProtocolError(f"peer: expected a message, got none for {limits.SILENCE_LIMIT_S:g} s")
        if self._is_server and self.state is State.OPENING and now - self._opened_at >= limits.HELLO_LIMIT_S:
            raise RemoteProtocolError(f"peer: expected a Hello within {limits.HELLO_LIMIT_S:g} s, got none")
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

    def excuse(self, seconds: float) -> None:
        """Gives the peer so much more time for all that it owes: this process did not run, and has heard nobody."""
        self._last_received += seconds
        if self._frame_deadline is not None:
            self._frame_deadline += seconds
        if self._assembly is not None:
            self._assembly.deadline += seconds

    def _may_be_loading(self, now: float) -> bool:
        """Whether a client was welcomed so lately that it may not get to say anything."""
        is_welcomed = self.state not in (State.OPENING, State.GREETED, State.CHALLENGED, State.PROVEN)
        return self._is_server and is_welcomed and now - self._opened_at < limits.LOADING_LIMIT_S

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
        came = self._assemble(message_type, frame, now)
        if came is None:
            return None
        if message_type is Ready and self._outbox.has_weights:
            raise RemoteProtocolError("Ready: expected it after the weights, which have not even left")
        payload, headers = came
        message = cast(Message, _decoded(payload, message_type))
        if self._is_server and isinstance(message, Activations):
            keep(message, Parcel(message_type, payload, headers))
        self.state = state
        if state is State.LINKED:
            self._parser.max_payload_bytes = CHUNK_BYTES
        if message_type in PARTING:
            self._they_parted = True
            self._outbox.clear()
        return message

    def _assemble(
        self, message_type: MessageType, frame: Frame, now: float
    ) -> tuple[bytearray | memoryview, list[bytes]] | None:
        """The payload, and its headers, if this frame completes it. Only data is ever unfinished: control takes one
        chunk."""
        is_control = frame.stream == CONTROL_STREAM
        assembly = None if is_control else self._assembly
        if assembly is None:
            max_bytes = self._max_bytes(message_type)
            if frame.n_chunks == 1 and len(frame.payload) <= max_bytes:
                return frame.payload, [bytes(frame.header)]  # the decoder copies the payload
            assembly = Assembly(message_type, frame, max_bytes=max_bytes, now=now)
        payload = assembly.add(message_type, frame)
        if not is_control:
            self._assembly = assembly if payload is None else None
        return None if payload is None else (payload, assembly.headers)

    def _lease(self, assignment: Assignment) -> None:
        """Raises the limit of a Result to what this lease asks for; it never falls, for older Results on their way."""
        # A relay adds rounded estimates up and rounds nothing again: its sums may need every byte.
        width = MAX_EXACT_BYTES
        if assignment.shaping is not None:
            width = exact_width(assignment.quota, assignment.perturbation.rank)
        has_estimate = assignment.shaping is not None or assignment.perturbation.is_summed
        estimate_bytes = min(width * self._estimate_bytes, limits.LARGEST_ESTIMATE_BYTES) if has_estimate else 0
        moments_bytes = assignment.quota // assignment.group_size * self._moments_bytes
        limit = limits.result_limit_bytes(assignment.quota, estimate_bytes=estimate_bytes, moments_bytes=moments_bytes)
        self._result_bytes = max(self._result_bytes, limit)
        self._allowance.lease(limit)
        largest = self._result_bytes
        if (seat := self._seat) is not None:
            self._allowance.lease_seat(*limits.lease_of_activations(seat, assignment))
            largest = max(largest, limits.activations_limit_bytes(seat))
        self._parser.max_payload_bytes = min(largest, CHUNK_BYTES)

    def _max_bytes(self, message_type: MessageType) -> int:
        """The longest message of this type that the peer may send now."""
        if message_type is Result:
            return self._result_bytes
        if message_type is Activations and self._is_server:
            return limits.activations_limit_bytes(self._seat) if self._seat is not None else self._activations_bytes
        return limits.max_message_bytes(message_type, max_snapshot_bytes=self._max_snapshot_bytes)

    def _can_chat(self) -> bool:
        """Whether a Ping or Pong is legal and none waits: so a peer that asks without reading fills no queue."""
        return not (self.has_parted or self._outbox.has_control or self.state is State.OPENING)


def _decoded(payload: bytes | bytearray | memoryview, message_type: MessageType) -> object:
    try:
        return decode(payload, message_type)
    except RemoteProtocolError as error:
        # A Hello of another version may have other fields behind the number of its version.
        version = version_said(payload) if message_type is Hello else None
        if version is None or version == PROTOCOL_VERSION:
            raise
        raise RemoteProtocolError(version_mismatch(version)) from error
