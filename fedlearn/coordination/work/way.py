"""The way of members through the stages of a crew: forward, and where gradients are measured back again.

A leg is one stage's part of the way. Of n stages the first n legs are those forward; the last stage turns, and the legs
back lead from the last stage but one to the first.
"""

import msgspec

from fedlearn.wire.messages import Activations, Assignment, Result, Taken

Work = Activations | Result | Taken
"""Messages of a seat about members that passed through it."""


class MessageSizes(msgspec.Struct, frozen=True):
    """The lengths of the messages that leave a seat in one direction."""

    batch: int
    """The most members in one message."""
    member_bytes: int
    group_bytes: int = 0
    """Bytes that are sent once a group, with its first members."""


def way_of(n_stages: int, *, comes_back: bool) -> tuple[int, ...]:
    """The stage of each leg."""
    forward = range(n_stages)
    back = forward[:-1][::-1] if comes_back else ()
    return (*forward, *back)


def leg_of(way: tuple[int, ...], stage: int, said: Work) -> int:
    """The leg that a stage ends with what it said: the one forward, or its last one."""
    is_forward = isinstance(said, Activations) and not said.backward
    return stage if is_forward else len(way) - 1 - way[::-1].index(stage)


def members_together(assignment: Assignment, batch: int) -> int:
    """Members of the lease that messages do not cross the ends of: those of a group, or, without noise, of a batch."""
    return assignment.group_size if assignment.perturbation.has_noise else batch


def misfit_of(said: Activations, sizes: MessageSizes, assignment: Assignment) -> str:
    """Describes how members and payload of a message differ from the plan; empty where they do not.

    Without noise the messages forward and back are about the same members, since each seat keeps what it was sent.
    """
    offset, together = said.first_member - assignment.first_member, members_together(assignment, sizes.batch)
    most = min(sizes.batch, together - offset % together, assignment.quota - offset)
    n_bytes = said.n_members * sizes.member_bytes + (0 if offset % together else sizes.group_bytes)
    least = 1 if assignment.perturbation.has_noise else most
    if least <= said.n_members <= most and len(said.payload) == n_bytes:
        return ""
    members = f"at most {most}" if least < most else f"{most}"
    return f"expected {members} members and {n_bytes} bytes of {said.n_members}, got {len(said.payload)} bytes"


def end_of(said: Work) -> int:
    """The member before which a message ends; for a sum without losses the one behind its first."""
    return said.next_member if isinstance(said, Taken) else said.first_member + max(members_of(said), 1)


def members_of(said: Activations | Result) -> int:
    """Number of members in a message."""
    return said.n_members if isinstance(said, Activations) else said.losses.size
