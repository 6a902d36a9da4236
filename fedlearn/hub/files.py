"""Files that requests may name: those of one folder of the hub's machine, without links that lead out of it."""

from pathlib import Path

from fedlearn.hub.bodies import RefusedError

MAX_LISTED = 500
TASK_SUFFIX = ".py"


def below(folder: Path, name: str, *, key: str) -> Path:
    """The path of a name within the folder, with links followed.

    Raises:
        RefusedError: it is not in the folder.
    """
    root = folder.resolve()
    try:
        path = (root / name).resolve()
        is_there = path.exists()
    except (OSError, ValueError, RuntimeError):  # a null character, a name without end, a circle of links
        path, is_there = root, False
    if not is_there or not path.is_relative_to(root) or path == root:
        raise RefusedError(400, f"{key}: expected a name within the hub's folder for it, got {name!r}; put it there")
    return path


def file_below(folder: Path, name: str, *, key: str) -> Path:
    """The path of the named file within the folder."""
    path = below(folder, name, key=key)
    if not path.is_file():
        raise RefusedError(400, f"{key}: expected a file, got {name!r}, which is none")
    return path


def task_below(folder: Path, entry: str) -> str:
    """FILE.py:NAME with the file's whole path.

    Raises:
        RefusedError: the entry has another form, or the file is not in the folder.
    """
    name, colon, task = entry.rpartition(":")
    if not colon or not name.endswith(TASK_SUFFIX) or not task.isidentifier():
        raise RefusedError(400, f"task: expected FILE.py:NAME, such as digits.py:task, got {entry!r}")
    return f"{file_below(folder, name, key='task')}:{task}"


def files_in(folder: Path) -> list[str]:
    """Names of the files in the folder that a request may use, for people to choose from."""
    root, found = folder.resolve(), list[str]()
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        if len(found) == MAX_LISTED:
            break
        if path.is_file() and path.resolve().is_relative_to(root):
            found.append(path.relative_to(folder).as_posix())
    return found
