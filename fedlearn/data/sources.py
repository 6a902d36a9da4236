"""Opens the sources of texts that a user names."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast, final

from fedlearn.data import hugging_face, python_docs
from fedlearn.data.decoding import check_encoding
from fedlearn.data.download import Cache, is_url
from fedlearn.data.files import FileTexts, find_files
from fedlearn.data.pipe import PipedText
from fedlearn.data.rows import RowTexts, row_name
from fedlearn.text.source import NoProgress, Progress, Source, Texts

STANDARD_INPUT = "-"


def open_source(
    names: Sequence[str],
    encoding: str,
    *,
    stdin: BinaryIO | None = None,
    cache: Cache | None = None,
    progress: Progress | None = None,
) -> Source:
    """The texts of all names in their order. Files are looked up, URLs downloaded, pipes read; nothing is decoded yet.

    Raises:
        ValueError: a name stands for nothing that can be had, or the encoding is none.
    """
    check_encoding(encoding)
    if names.count(STANDARD_INPUT) > 1:
        raise ValueError("data: expected standard input (-) once, got it again; leave it out")
    opening = _Opening(encoding, stdin, cache or Cache.of_user(), progress or NoProgress())
    sources = [opening.open(name) for name in names]
    return sources[0] if len(sources) == 1 else _Sources(sources)


class _Opening(NamedTuple):
    """What the sources have in common."""

    encoding: str
    stdin: BinaryIO | None
    cache: Cache
    progress: Progress

    def open(self, name: str) -> Source:
        if name == python_docs.NAME:
            return python_docs.PythonDocs()
        if name == STANDARD_INPUT:
            return PipedText("standard input", self.stdin or _standard_input(), self.encoding, self.progress)
        if name.startswith(hugging_face.PREFIX):
            return hugging_face.DataSetTexts(name, self.progress)
        if (rows := row_name(name)) is not None:
            return RowTexts(self._files(rows.path, name), rows.column)
        if Path(name).is_fifo():
            return self._pipe(name)
        return self._files(name, name)

    def _files(self, path: str, name: str) -> FileTexts:
        paths = [self.cache.fetch(path, self.progress)] if is_url(path) else find_files(path)
        return FileTexts(name, paths, self.encoding)

    def _pipe(self, name: str) -> PipedText:
        """The text of a pipe, such as the shell's <(COMMAND)."""
        try:
            with open(name, "rb") as stream:
                return PipedText(name, stream, self.encoding, self.progress)
        except OSError as error:
            raise ValueError(f"data: expected a pipe that can be read, got {name!r}: {error.strerror}") from error


def _standard_input() -> BinaryIO:
    """A process without a console, and some shells of Python, have none."""
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None:
        raise ValueError("data: expected a text on standard input, this process has none; give a file")
    return cast(BinaryIO, stream)


@final
class _Sources:
    """Several sources as one."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.name = ", ".join(source.name for source in sources)
        sizes = [source.size_bytes for source in sources]
        self.size_bytes = sum(sizes) if all(sizes) else 0
        self._sources = sources

    def texts(self, read: Callable[[int], None]) -> Texts:
        for source in self._sources:
            yield from source.texts(read)
