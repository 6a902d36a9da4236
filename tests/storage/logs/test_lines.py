from pathlib import Path

import msgspec
import pytest

from fedlearn.storage.durable import StorageError
from fedlearn.storage.logs.lines import LineLog, read_lines


class Entry(msgspec.Struct, frozen=True):
    number: int


def write(path: Path, *values: msgspec.Struct) -> None:
    log = LineLog(path)
    for value in values:
        log.append(value)
    log.close()


def test_lines_read_as_they_were_added(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    assert list(read_lines(path, Entry)) == []
    write(path, Entry(0), Entry(1))
    write(path, Entry(2))
    assert list(read_lines(path, Entry)) == [Entry(0), Entry(1), Entry(2)]


def test_line_that_a_crash_tore_costs_that_line(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    write(path, Entry(0))
    with path.open("ab") as file:
        file.write(b'{"numb')
    write(path, Entry(2))
    assert list(read_lines(path, Entry)) == [Entry(0), Entry(2)]


def test_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="a line could not be written"):
        write(tmp_path / "absent" / "lines", Entry(0))
