"""What volunteers of a user's task are told, and what they make of it with a copy of the task of their own."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from fedlearn.tasks.invitation import Invitation
from fedlearn.tasks.task import Device
from fedlearn.tasks.user.named_task import NamedTask, check_identity
from fedlearn.tasks.user.task_objective import TaskObjective


class _Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of an invitation to a user's task."""

    batch_size: Annotated[int, Meta(ge=1, le=2**31 - 1)]


def invitation_of(
    kind: str, *, seed: int, batch_size: int, identity: Mapping[str, str], attachment: bytes = b""
) -> Invitation:
    """The invitation to a user's task whose groups have so many rows."""
    return Invitation(kind, seed, msgspec.structs.asdict(_Options(batch_size)), dict(identity), attachment)


def joined(named: NamedTask, invitation: Invitation, *, device: Device) -> TaskObjective:
    """The objective of whoever has a copy of the task.

    Raises:
        ValueError: the copy is not the server's, or the invitation is of another version.
    """
    try:
        options = msgspec.convert(dict(invitation.options), _Options)
    except msgspec.ValidationError as error:
        raise ValueError(f"options: {error}; is this version of fedlearn older than the server's?") from error
    objective = TaskObjective(named.task, seed=invitation.seed, device=device, batch_size=options.batch_size)
    check_identity(named.identity, invitation.identity)
    return objective
