"""Limits how far the first seat of a crew may be ahead of the others, so that none is sent more than it can hold."""

from collections.abc import Sequence

MOST_MESSAGES = 64
"""The most messages in flight, however short they are."""

WAY_BYTES = 16 * 2**20
"""The most bytes of activations in flight, where seats lend more."""

MESSAGES_PER_SEAT = 2
"""The least number of messages in flight for each seat, memory permitting: one is computed and one waits."""

SHARES = 4
"""A seat's activations may take one of this many equal shares of its memory; twice that waits where the next lease is
early."""


def reach(offset: int, *, window: int, batch: int, group_size: int) -> int:
    """The member before which the first seat must stop once all before `offset` are through; both count from the
    lease's first.

    It stops behind `window` messages, each of at most `batch` members of one group.
    """
    per_group = -(-group_size // batch)
    n_through = offset // group_size * per_group + -(-(offset % group_size) // batch)
    n_groups, n_more = divmod(n_through + window, per_group)
    return n_groups * group_size + min(n_more * batch, group_size)


def fitting_batch(most: int, receivers: Sequence[tuple[int, int, int]]) -> int:
    """Members in a message, at most `most`, so that one message fits while another one waits, if two of one member do.

    A receiver is a tuple of the memory that it lends (0: enough), and the bytes of a member and of a group that it is
    sent.
    """
    fitting = [
        (lent // SHARES // MESSAGES_PER_SEAT - group_bytes) // max(member_bytes, 1)
        for lent, member_bytes, group_bytes in receivers
        if lent
    ]
    return max(min([most, *fitting]), 1)


def fitting_window(batch: int, receivers: Sequence[tuple[int, int, int]]) -> int:
    """Messages that may be in flight to all of these receivers together."""
    messages = [(lent, max(batch * member_bytes + group_bytes, 1)) for lent, member_bytes, group_bytes in receivers]
    longest = max((n_bytes for _, n_bytes in messages), default=1)
    wanted = min(max(WAY_BYTES // longest, MESSAGES_PER_SEAT * (len(messages) + 1)), MOST_MESSAGES)
    return max(min([wanted, *(lent // SHARES // n_bytes for lent, n_bytes in messages if lent)]), 1)
