import io
import os
import threading
from pathlib import Path

import pytest

from fedlearn.data.sources import open_source
from fedlearn.text.source import Source
from tests.patience import LIMIT_S
from tests.tasks.followed import Followed


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def texts_of(source: Source) -> list[str]:
    return ["".join(text) for text in source.texts(lambda _: None)]


def test_standard_input_is_one_text_of_which_progress_is_told() -> None:
    followed = Followed()
    source = open_source(["-"], "utf-8", stdin=io.BytesIO(b"a\r\nb"), progress=followed)
    assert (source.name, source.size_bytes, texts_of(source)) == ("standard input", 4, ["a\nb"])
    assert followed.told == [("reading standard input", "bytes", [(4, None)])]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such pipes")
def test_pipe_of_the_shell_is_a_text_like_standard_input(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "pipe")
    followed, begun = Followed(), threading.Event()

    def write_slowly() -> None:
        with open(path, "wb", buffering=0) as pipe:
            pipe.write(b"pip")
            begun.wait(LIMIT_S)
            pipe.write(b"ed")

    followed.reached = begun.set
    writing = threading.Thread(target=write_slowly)
    writing.start()
    source = open_source([str(path)], "utf-8", progress=followed)
    writing.join()
    assert (source.name, source.size_bytes, texts_of(source)) == (str(path), 5, ["piped"])
    assert followed.told == [(f"reading {path}", "bytes", [(3, None), (5, None)])]
    path.chmod(0)
    if os.geteuid() != 0:
        with pytest.raises(ValueError, match=r"expected a pipe that can be read, got '.*pipe': Permission denied"):
            open_source([str(path)], "utf-8")


def test_rows_of_files_that_a_user_names_are_texts_and_those_of_a_folder_are_not(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"body": "one"}\n')
    (tmp_path / "b.jsonl").write_text('{"body": "two", "title": "2"}\n')
    assert texts_of(open_source([str(tmp_path / "a.jsonl")], "utf-8")) == ["one"]
    rows = open_source([str(tmp_path / "*.jsonl:body")], "utf-8")
    assert (rows.name, texts_of(rows)) == (str(tmp_path / "*.jsonl:body"), ["one", "two"])
    assert texts_of(open_source([str(tmp_path)], "utf-8")) == [path.read_text() for path in sorted(tmp_path.iterdir())]


def test_process_without_standard_input_reads_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("text")
    monkeypatch.setattr("sys.stdin", None)
    assert texts_of(open_source([str(tmp_path / "a.txt")], "utf-8")) == ["text"]
    with pytest.raises(ValueError, match="this process has none; give a file"):
        open_source(["-"], "utf-8")


def test_terminal_and_nothing_on_standard_input_are_refused() -> None:
    with pytest.raises(ValueError, match="got a terminal; pipe one in"):
        open_source(["-"], "utf-8", stdin=Terminal(b"a"))
    with pytest.raises(ValueError, match="got nothing from standard input"):
        open_source(["-"], "utf-8", stdin=io.BytesIO())


def test_several_names_are_texts_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("é".encode("latin-1"))
    names = [str(tmp_path / "a.txt"), "-", str(tmp_path)]
    source = open_source(names, "latin-1", stdin=io.BytesIO(b"piped"))
    assert texts_of(source) == ["é", "piped", "é"]
    assert source.size_bytes == 7
    assert source.name == f"{tmp_path / 'a.txt'}, standard input, {tmp_path}"


def test_names_and_encodings_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected standard input \(-\) once, got it again"):
        open_source(["-", "-"], "utf-8")
    with pytest.raises(ValueError, match="encoding: expected one that Python knows"):
        open_source(["-"], "utf-9")
