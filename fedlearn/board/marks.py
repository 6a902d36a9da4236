"""Marks that tell a file, or a run, from another one that has replaced it."""

from pathlib import Path

from fedlearn.storage.runs import RunFolder

Mark = tuple[int, ...]


def mark_of(path: Path) -> Mark:
    """A value that changes whenever the file is written; empty where there is none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size


def birth_of(folder: RunFolder) -> str:
    """A text that differs for a run that was made anew in a folder of the same name: taken from a file that is written
    once."""
    return "-".join(f"{number:x}" for number in mark_of(folder.origin))


def timeline_of(folder: RunFolder) -> tuple[str, Mark]:
    """A value that also changes where the run was taken back to an earlier step, for which its metrics are written
    anew."""
    return birth_of(folder), mark_of(folder.metrics)[:1]
