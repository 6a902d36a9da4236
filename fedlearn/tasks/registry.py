"""The kinds of tasks that are installed: fedlearn's own, and those of other packages."""

from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from fedlearn.config.nearest import did_you_mean
from fedlearn.tasks.kind import Kind
from fedlearn.tasks.task import CUSTOM, Task

GROUP = "fedlearn.tasks"
"""The group of entry points under which a package registers a kind."""


@cache
def registered() -> Iterable[EntryPoint]:
    """What packages have registered; looking through all that are installed takes 5 ms and more."""
    return entry_points(group=GROUP)


def kind_names() -> list[str]:
    """Names of all kinds that are installed."""
    return sorted({entry.name for entry in registered()})


@cache
def find_kind(name: str) -> Kind:
    """The kind with that name.

    Raises:
        ValueError: there is no such kind; the message lists the names.
    """
    for entry in registered():
        if entry.name == name:
            kind: Kind = entry.load()
            return kind
    names = kind_names()
    question = did_you_mean(name, names) or "is this version of fedlearn older than the server's?"
    raise ValueError(f"task: expected one of {', '.join(names)}, or FILE.py:NAME of a task, got {name!r}; {question}")


def kind_of_task(task: Task) -> Kind:
    """The kind that a task names, or `custom` where no package brings that one."""
    return find_kind(task.kind if task.kind in kind_names() else CUSTOM)
