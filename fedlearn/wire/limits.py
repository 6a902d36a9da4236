"""How large a message may be, and how long its sender may take."""

from collections.abc import Mapping

from fedlearn.es.snapshot import Snapshot
from fedlearn.es.update import Update
from fedlearn.wire.messages import Activations, Assignment, DataBlock, Result, Seat, SeatBefore, Welcome
from fedlearn.wire.states import MessageType

_KIB = 1024
_MIB = 1024 * _KIB

DEFAULT_MAX_SNAPSHOT_BYTES = 15 * 1024 * _MIB
"""Default limit of a Snapshot, enough for a billion parameters: weights, the start and Adam's two moments."""

MAX_SMALL_BYTES = 4 * _KIB
"""The limit of a message that has no reason to be larger."""
_MAX_BYTES: Mapping[MessageType, int] = {
    Welcome: 64 * _MIB,  # a graph with the arrays that are not learned
    Result: 36 * _MIB + MAX_SMALL_BYTES,  # a million losses, and an estimate of sixteen million parameters
    Update: 36 * _MIB,  # sixteen million utilities or an estimate of as many parameters, and the spans
    DataBlock: 64 * _MIB,
    Activations: 64 * _MIB,
}

PING_AFTER_S = 10.0
"""Seconds without sending anything after which a Ping is sent."""

SILENCE_LIMIT_S = 30.0
"""Seconds of silence after which a peer is considered gone."""

LOADING_LIMIT_S = 120.0
"""Seconds after its connection for which an admitted client may be silent: importing PyTorch on a busy machine can
block a process for a minute."""

HELLO_LIMIT_S = 10.0
"""The longest time from connecting to Hello, so that nobody holds a connection without using it."""

FRAME_LIMIT_S = 10.0
"""The longest time from the first byte of a frame to its last."""

_MESSAGE_LIMIT_S = 10.0
_MESSAGE_LIMIT_S_PER_MIB = 30.0

LARGEST_ESTIMATE_BYTES = 32 * _MIB
"""Bytes and shifts of the estimate of the largest model whose perturbation is summed."""


def max_message_bytes(message_type: MessageType, *, max_snapshot_bytes: int) -> int:
    """The largest payload of a message of this type, before it is cut into chunks, whoever sends it."""
    if message_type is Snapshot:
        return max_snapshot_bytes
    return _MAX_BYTES.get(message_type, MAX_SMALL_BYTES)


def result_limit_bytes(n_members: int, *, estimate_bytes: int, moments_bytes: int = 0) -> int:
    """The largest Result of a lease of `n_members`, each of which costs a float32."""
    return 4 * n_members + estimate_bytes + moments_bytes + MAX_SMALL_BYTES


def activations_limit_bytes(seat: Seat | SeatBefore) -> int:
    """The largest message that a seat may send to a neighbour, in bytes."""
    forward = seat.batch * seat.member_bytes + seat.group_bytes
    back = seat.batch * seat.received_bytes if isinstance(seat, Seat) else 0
    return min(max(forward, back) + MAX_SMALL_BYTES, _MAX_BYTES[Activations])


def lease_of_activations(seat: Seat, assignment: Assignment) -> tuple[int, int]:
    """The number of all messages about a lease's members that a seat may send, and their bytes."""
    quota, n_groups = assignment.quota, assignment.quota // assignment.group_size
    if assignment.perturbation.has_noise:
        n_messages = n_groups * -(-assignment.group_size // seat.batch)
        n_bytes = quota * seat.member_bytes + n_groups * seat.group_bytes
    else:  # forward and back, and how far members are
        n_messages = 3 * -(-quota // seat.batch)
        n_bytes = quota * (seat.member_bytes + seat.received_bytes)
    return n_messages, n_bytes + n_messages * MAX_SMALL_BYTES


def message_limit_s(length_bytes: int) -> float:
    """Seconds from a message's first chunk to its last; a line of 280 kbit/s is just fast enough."""
    return _MESSAGE_LIMIT_S + _MESSAGE_LIMIT_S_PER_MIB * length_bytes / _MIB
