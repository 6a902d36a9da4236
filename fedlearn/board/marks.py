"""Marks that tell a file, or a run, from another one that has replaced it."""

from fedlearn.storage.runs import RunFolder
from fedlearn.system.files import Mark, mark_of


def birth_of(folder: RunFolder) -> str:
    """A text that differs for a run that was made anew in a folder of the same name: taken from a file that is written
    once."""
    return "-".join(f"{number:x}" for number in mark_of(folder.origin))


def timeline_of(folder: RunFolder) -> tuple[str, Mark]:
    """A value that also changes where the run was taken back to an earlier step, for which its metrics are written
    anew."""
    return birth_of(folder), mark_of(folder.metrics)[:1]
