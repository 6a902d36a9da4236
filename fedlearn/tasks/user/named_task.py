"""A task that the person at this machine named, and hashes that must agree on all machines that name it."""

from collections.abc import Mapping
from functools import cached_property

import msgspec
import numpy as np
from blake3 import blake3

from fedlearn.tasks.blocks import Columns, block_name
from fedlearn.tasks.task import Task

_HASH_BYTES = 16


class NamedTask(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A task and its origin."""

    task: Task
    entry: str
    """The task as FILE.py:NAME on this machine."""
    source: bytes
    """The hash of the source that it was made from."""

    @cached_property
    def identity(self) -> dict[str, str]:
        """Hashes of everything that must be the same on the server and on volunteers, by name."""
        frozen: Columns = {name: np.asarray(array) for name, array in self.task.frozen.items()}
        return {
            "source": self.source.hex(),
            "frozen tensors": block_name(frozen).hex(),
            "tensors": _tensors_hash(self.task).hex(),
        }


def differences(own: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """The names of the hashes that differ between two identities."""
    return [what for what in other if own.get(what) != other[what]]


def check_identity(own: Mapping[str, str], servers: Mapping[str, str]) -> None:
    """Compares a volunteer's task with the server's.

    Raises:
        ValueError: they differ; the message says in what.
    """
    if different := differences(own, servers):
        raise ValueError(
            f"task: expected the server's {' and '.join(different)}, got other ones; "
            "take the same version of the task's files as the server has"
        )


def _tensors_hash(task: Task) -> bytes:
    """The hash (16 bytes) of names, shapes, scales and masks of trained tensors, and of the columns behind the
    masks."""
    # How many texts a reward compares is no part of a task: runs of losses go on that began without gradients.
    batch_size = task.batch_size_by_losses if task.is_tuned else task.batch_size
    described = (task.layout, sorted(task.reads.items()), batch_size)
    return blake3(msgspec.json.encode(described)).digest(_HASH_BYTES)
