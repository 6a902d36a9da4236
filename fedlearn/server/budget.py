"""A limit on the memory that all peers together may use at the server."""

from collections import Counter
from collections.abc import Iterable

from fedlearn.net.channel import Channel
from fedlearn.wire.messages import DataBlock

MAX_HELD_BYTES = 32 * 1024 * 1024
"""Bytes of unfinished messages and of what waits to be sent, besides those that come with large weights."""

LITTLE_BYTES = 64 * 1024
"""Bytes up to which no peer is dropped: a volunteer that keeps up has an Update waiting from time to time."""


def over_budget(channels: Iterable[Channel], *, max_bytes: int, now: float) -> list[Channel]:
    """The channels to drop so that the others hold at most `max_bytes`: the slowest first.

    Parcels that several peers share count once. Two blocks of data may wait besides, as large as the largest that does:
    all peers are sent the same one, and some may still wait for the one before.
    """
    holding = [channel for channel in channels if channel.private_bytes or channel.connection.bytes_queued]
    parcels = {channel: set(channel.connection.parcels()) for channel in holding}
    holders = Counter(parcel for shared in parcels.values() for parcel in shared)
    held = sum(parcel.length_bytes for parcel in holders) + sum(channel.private_bytes for channel in holding)
    max_bytes += 2 * max((parcel.length_bytes for parcel in holders if parcel.message_type is DataBlock), default=0)
    dropped = []
    much = [channel for channel in holding if channel.private_bytes + channel.connection.bytes_queued > LITTLE_BYTES]
    for channel in sorted(much, key=lambda channel: channel.pace_bytes_per_s(now)):
        if held <= max_bytes:
            break
        dropped.append(channel)
        holders.subtract(parcels[channel])
        held -= channel.private_bytes
        held -= sum(parcel.length_bytes for parcel in parcels[channel] if holders[parcel] == 0)
    return dropped
