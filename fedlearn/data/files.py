"""Texts of one file, of all files in a folder, or of those that match a pattern."""

import glob
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import final

from fedlearn.data.decoding import decode
from fedlearn.text.source import Texts


@final
class FileTexts:
    """Each file is a text."""

    def __init__(self, name: str, paths: list[Path], encoding: str) -> None:
        """Reads nothing yet.

        Raises:
            ValueError: there is nothing to read.
        """
        self.name = name
        self.size_bytes = sum(map(_size_of, paths))
        if self.size_bytes == 0:
            raise ValueError(f"data: expected a text, got {len(paths)} empty file(s) from {name!r}; choose another")
        self.paths = paths
        self._encoding = encoding

    def texts(self, read: Callable[[int], None]) -> Texts:
        return (self.text(path, read) for path in self.paths)

    def text(self, path: Path, read: Callable[[int], None]) -> Iterator[str]:
        """One of the texts, in pieces."""
        try:
            with open(path, "rb") as file:
                yield from decode(file, str(path), self._encoding, read)
        except OSError as error:
            raise ValueError(f"data: expected a readable file, got {str(path)!r}: {error.strerror}") from error


def find_files(name: str) -> list[Path]:
    """The files that a name stands for, in order of their paths; hidden ones are passed over.

    Raises:
        ValueError: there are none.
    """
    path = Path(name)
    if path.is_dir():
        found = (inner for inner in sorted(path.rglob("*")) if not _is_hidden(inner.relative_to(path)))
        remedy = "choose another folder"
    elif not path.exists() and glob.has_magic(name):
        found, remedy = (Path(match) for match in sorted(glob.glob(name, recursive=True))), _no_match()
    else:
        return [path]
    files = [inner for inner in found if inner.is_file()]
    if not files:
        raise ValueError(f"data: expected files, got none from {name!r}; {remedy}")
    return files


def _no_match() -> str:
    return f"no file matches this pattern, which begins in {Path.cwd()} unless it begins with /; choose another"


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise ValueError(
            "data: expected 'python-docs' or the path of a file or folder, a pattern such as 'texts/*.txt', a URL, "
            f"hf:NAME or - for standard input, got {str(path)!r}: {error.strerror}"
        ) from error


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
