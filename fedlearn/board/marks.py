"""What tells a file, or a run, from another one that has taken its place."""

from pathlib import Path

from fedlearn.storage.runs import RunFolder

Mark = tuple[int, ...]


def mark_of(path: Path) -> Mark:
    """Another one once the file was written; empty where there is none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size


def birth_of(folder: RunFolder) -> str:
    """Another text for a run that was made anew in a folder of the same name: of a file that is written once."""
    return "-".join(f"{number:x}" for number in mark_of(folder.origin))


def timeline_of(folder: RunFolder) -> tuple[str, Mark]:
    """Another one as well where the run was taken back to an earlier step, for which its metrics are written anew."""
    return birth_of(folder), mark_of(folder.metrics)[:1]
