from pathlib import Path

import numpy as np
import pytest

from fedlearn.data.folder import RunData
from fedlearn.text.source import NoProgress


def test_array_is_mapped_and_not_read(tmp_path: Path) -> None:
    folder = RunData(tmp_path)
    with folder.create("a.npy") as file:
        np.save(file, np.arange(10, dtype=np.uint8))
    array = folder.view("a.npy")
    assert type(array) is np.ndarray
    assert array.tolist() == list(range(10))
    assert isinstance(array.base, np.memmap)
    assert not array.flags.writeable
    assert folder.read("a.npy").startswith(b"\x93NUMPY")


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"before")
    with pytest.raises(FileExistsError), RunData(tmp_path).create("a"):
        pass
    assert RunData(tmp_path).read("a") == b"before"


def test_pickles_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"Python objects in dtype|allow_pickle|object arrays"):
        RunData(tmp_path).view("a.npy")


def test_room_is_that_of_the_disk(tmp_path: Path) -> None:
    assert RunData(tmp_path).free_bytes > 0
    (tmp_path / "a.txt").write_text("text")
    assert RunData(tmp_path).source([str(tmp_path / "a.txt")], "utf-8", NoProgress()).size_bytes == 4
