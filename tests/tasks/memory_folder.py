"""The data folder of a run, in memory, and texts to put into it."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, final

import numpy as np
from numpy.typing import NDArray

from fedlearn.text.source import Progress, Source, Texts


@final
class TextSource:
    """Texts in pieces of a few characters."""

    name = "text.txt"

    def __init__(self, *texts: str, piece: int = 1000) -> None:
        self._texts = texts
        self._piece = piece
        self.size_bytes = sum(len(text.encode()) for text in texts)
        self.n_readings = 0

    def texts(self, read: Callable[[int], None]) -> Texts:
        self.n_readings += 1
        for text in self._texts:
            read(len(text.encode()))
            yield (text[start : start + self._piece] for start in range(0, len(text), self._piece))


@final
class MemoryFolder:
    """Files by name, and one source, whatever is asked for."""

    free_bytes = 10**9

    def __init__(self, files: Mapping[str, bytes], source: Source | None = None) -> None:
        self.files = dict(files)
        self.asked: tuple[Sequence[str], str] | None = None
        """The names and the encoding of the source."""
        self._source = source

    def read(self, name: str) -> bytes:
        if name not in self.files:
            raise FileNotFoundError(2, "No such file or directory", name)
        return self.files[name]

    def view(self, name: str) -> NDArray[Any]:
        array: NDArray[Any] = np.load(io.BytesIO(self.read(name)), allow_pickle=False)
        return array

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        file = io.BytesIO()
        yield file
        self.files[name] = file.getvalue()

    def source(self, names: Sequence[str], encoding: str, progress: Progress) -> Source:
        del progress
        self.asked = names, encoding
        assert self._source is not None, "expected no source to be asked for"
        return self._source
