from pathlib import Path

import msgspec
import pytest

from fedlearn.storage.durable import StorageError
from fedlearn.storage.lines import append_line, read_lines


class Entry(msgspec.Struct, frozen=True):
    number: int


def test_lines_read_as_they_were_added(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    assert list(read_lines(path, Entry)) == []
    for number in range(3):
        append_line(path, Entry(number))
    assert list(read_lines(path, Entry)) == [Entry(0), Entry(1), Entry(2)]


def test_line_that_a_crash_tore_costs_that_line(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append_line(path, Entry(0))
    with path.open("ab") as file:
        file.write(b'{"numb')
    append_line(path, Entry(2))
    assert list(read_lines(path, Entry)) == [Entry(0), Entry(2)]


def test_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="a line could not be added"):
        append_line(tmp_path / "absent" / "lines", Entry(0))
