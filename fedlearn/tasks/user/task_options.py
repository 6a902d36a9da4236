"""The settings of runs of a user's task; the task itself defines everything else."""

from typing import Annotated, Literal

import msgspec

from fedlearn.config import RunConfig, setting


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A task that a file of Python brings."""

    share: Annotated[
        Literal["auto", "graph", "nothing"],
        setting(
            "what travels to volunteers: graph = the model as data, so that they need no file of the task's; "
            "nothing = they name the file too; auto = graph where the task has one",
            resumable=True,
        ),
    ] = "auto"
    steps_per_block: Annotated[
        int, setting("steps between blocks, where the data are too large for one", ge=1, le=2**53)
    ] = 100


def options_of(config: RunConfig) -> TaskOptions:
    """The settings of a run of a user's task."""
    assert isinstance(config.options, TaskOptions), f"expected TaskOptions, got {type(config.options).__name__}"
    return config.options
