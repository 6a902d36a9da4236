"""The data folder of a run, as a kind of task sees it."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, final

import numpy as np
from numpy.typing import NDArray

from fedlearn.data.sources import open_source
from fedlearn.system.files import sync_folder
from fedlearn.text.source import Progress, Source


@final
class RunData:
    """Files in one folder, and what its user names outside of it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def free_bytes(self) -> int:
        return shutil.disk_usage(self._path).free

    def read(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    def view(self, name: str) -> NDArray[Any]:
        # As a plain array, since each slice of a mapped one costs microseconds.
        return np.asarray(np.load(self._path / name, mmap_mode="r", allow_pickle=False))

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        with open(self._path / name, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self._path)

    def source(self, names: Sequence[str], encoding: str, progress: Progress) -> Source:
        return open_source(names, encoding, progress=progress)
