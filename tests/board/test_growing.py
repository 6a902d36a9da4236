import os
import sys
from pathlib import Path

import msgspec
import pytest

from fedlearn.board import growing as module
from fedlearn.board.growing import GrowingFile


class Line(msgspec.Struct):
    number: int


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lines.jsonl"


def numbers(file: GrowingFile[Line]) -> list[int]:
    return [line.number for line in file.read()[0]]


def test_each_line_is_given_once_when_it_is_whole(path: Path) -> None:
    file = GrowingFile(path, Line)
    assert numbers(file) == []
    path.write_text('{"number": 1}\n{"num')
    assert numbers(file) == [1]
    assert numbers(file) == []
    with path.open("a") as end:
        end.write('ber": 2}\n')
    assert numbers(file) == [2]


def test_what_is_no_line_is_passed_over(path: Path) -> None:
    path.write_bytes(b'{"number": 1}\n{"number": "x"}\n\xff\n\n' + b"[" * 100_000 + b'\n{"number": 2}\n')
    assert numbers(GrowingFile(path, Line)) == [1, 2]


@pytest.mark.parametrize("way", ["cut", "replaced"])
def test_another_file_is_read_from_its_start(path: Path, way: str) -> None:
    path.write_text('{"number": 1}\n{"number": 2}\n')
    file = GrowingFile(path, Line)
    assert not file.read()[1]
    if way == "replaced":
        other = path.with_name("other")
        other.write_text('{"number": 3}\n{"number": 4}\n{"number": 5}\n')
        other.rename(path)
    else:
        path.write_text('{"number": 3}\n')
    lines, is_other = file.read()
    assert is_other
    assert lines[0].number == 3
    assert not file.read()[1]


def test_large_file_comes_in_pieces(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", 40)
    path.write_text("".join(f'{{"number": {number}}}\n' for number in range(9)))
    file = GrowingFile(path, Line)
    assert [numbers(file) for _ in range(6)] == [[0, 1], [2, 3], [4, 5], [6, 7], [8], []]


def test_line_that_never_ends_is_passed_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", 40)
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 30)
    path.write_text("x" * 100 + '\n{"number": 1}\n')
    file = GrowingFile(path, Line)
    assert [numbers(file) for _ in range(4)] == [[], [], [1], []]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files")
def test_pipe_has_no_lines(path: Path) -> None:
    os.mkfifo(path)
    assert GrowingFile(path, Line).read() == ([], False)
