import json
from pathlib import Path

import pytest

from fedlearn.data import rows
from fedlearn.data.files import FileTexts
from fedlearn.data.rows import RowTexts, row_name


def texts_of(path: Path, column: str = "") -> list[str]:
    files = FileTexts("NAME", [path], "utf-8")
    return ["".join(text) for text in RowTexts(files, column).texts(lambda _: None)]


def written(path: Path, *rows: object) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


def test_names_of_files_of_rows_may_name_a_column() -> None:
    assert row_name("a.jsonl") == ("a.jsonl", "")
    assert row_name("x/*.CSV:The story") == ("x/*.CSV", "The story")
    assert row_name("https://HOST:80/a.jsonl:body#sha256=ab") == ("https://HOST:80/a.jsonl#sha256=ab", "body")
    for name in ("a.json", "a.txt:body", "a.jsonl.gz", ".csv", "a.jsonl:x:y", "a.jsonl:"):
        assert row_name(name) is None


def test_each_line_of_json_is_a_text(tmp_path: Path) -> None:
    long = "word " * 10**6
    path = written(tmp_path / "a.jsonl", {"id": 1, "text": "one\r\ntwo\u2028\x85"}, {"text": "é\ud800"}, {"text": long})
    path.write_text(path.read_text() + '\n\n \n{"text": "last"}\r\n')
    assert texts_of(path) == ["one\ntwo\u2028\x85", "é?", long, "last"]
    told: list[int] = []
    source = RowTexts(FileTexts("NAME", [path], "utf-8"), "")
    assert (source.name, source.size_bytes) == ("NAME", path.stat().st_size)
    for text in source.texts(told.append):
        list(text)
    assert sum(told) == source.size_bytes


def test_rows_without_text_are_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", {"a": None, "n": 1}, {"a": ""}, {"b": "other"}, {"a": "one"})
    assert texts_of(path, "a") == texts_of(path) == ["one"]


def test_each_row_of_a_table_is_a_text(tmp_path: Path) -> None:
    path = tmp_path / "a.CSV"
    path.write_bytes(b'id,story\r\n1,"one, ""two""\r\nthree"\r\n2,\r\n3\r\n4,last,more\r\n')
    assert texts_of(path, "story") == ['one, "two"\nthree', "last"]
    assert texts_of(path, "id") == ["1", "2", "3", "4"]


def test_column_is_the_one_named_text_or_the_only_one(tmp_path: Path) -> None:
    assert texts_of(written(tmp_path / "a.jsonl", {"title": "t", "text": "x"})) == ["x"]
    assert texts_of(written(tmp_path / "a.jsonl", {"title": "t", "n": 1})) == ["t"]
    path = written(tmp_path / "a.jsonl", {"title": "t", "body": "b", "n": 1})
    for column, given in (("", path), ("text", f"{path}:text"), ("n", f"{path}:n")):
        with pytest.raises(ValueError, match=rf"expected FILE:COLUMN, got {given}; its columns .* are title, body$"):
            texts_of(path, column)
    with pytest.raises(ValueError, match="its columns of text are none"):
        texts_of(written(path, {"n": 1}))


@pytest.mark.parametrize("line", ['{"text": ', "[1]", "plain words", "[" * 100_000])
def test_line_that_is_no_object_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "x"}\n\n' + line)
    with pytest.raises(ValueError, match=r"a JSON object in each line of .*a\.jsonl, got .* in line 3.*plain text"):
        texts_of(path)


def test_value_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", {"text": "x"}, {"text": ["y"]})
    with pytest.raises(ValueError, match=r'expected text in the column text of .*, got \["y"\] in line 2'):
        texts_of(path)


def test_lines_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_LINE", 200)
    path = written(tmp_path / "a.jsonl", {"text": "x" * 300})
    with pytest.raises(ValueError, match=r"expected lines of at most 200 characters, got a longer one in .*a\.jsonl"):
        texts_of(path)
    (tmp_path / "a.csv").write_text('text\n"' + "line\n" * 100 + '"')
    with pytest.raises(ValueError, match=r"expected CSV in .*a\.csv, got line .*: field larger"):
        texts_of(tmp_path / "a.csv")
