from pathlib import Path

import pytest

from fedlearn.data.files import FileTexts, find_files


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.with_suffix(".txt").write_text(text)


def texts_of(name: str) -> list[str]:
    return ["".join(text) for text in FileTexts(name, find_files(name), "utf-8").texts(lambda _: None)]


def test_file_is_one_text(tmp_path: Path) -> None:
    write(tmp_path, a="one\ntwo")
    assert texts_of(str(tmp_path / "a.txt")) == ["one\ntwo"]


def test_folder_is_all_its_files_in_order_but_hidden_ones(tmp_path: Path) -> None:
    write(tmp_path, b="2", a="1", c__d="3", c__e="")
    (tmp_path / ".hidden").write_bytes(b"\0")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x").write_bytes(b"\0")
    assert texts_of(str(tmp_path)) == ["1", "2", "3", ""]


def test_folder_that_lies_in_a_hidden_one_is_read(tmp_path: Path) -> None:
    write(tmp_path, **{".hidden__a": "1"})
    assert texts_of(str(tmp_path / ".hidden")) == ["1"]


def test_pattern_is_the_files_that_it_matches_in_order(tmp_path: Path) -> None:
    write(tmp_path, b="2", a="1", c__d="3")
    (tmp_path / "a.bin").write_bytes(b"\0")
    assert texts_of(str(tmp_path / "*.txt")) == ["1", "2"]
    assert texts_of(str(tmp_path / "**" / "*.txt")) == ["1", "2", "3"]


def test_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "[a].txt").write_text("mine")
    write(tmp_path, a="other")
    assert texts_of(str(tmp_path / "[a].txt")) == ["mine"]


def test_names_of_nothing_are_refused_with_what_there_may_be(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"expected files, got none from '.*\*\.md'; no file matches .*; choose another",
    ):
        find_files(str(tmp_path / "*.md"))
    with pytest.raises(ValueError, match=r"expected files, got none from .*; choose another folder"):
        find_files(str(tmp_path))
    with pytest.raises(ValueError, match=r"the path of a file or folder, .* got '.*nothing\.txt': No such file"):
        texts_of(str(tmp_path / "nothing.txt"))


def test_empty_files_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    write(tmp_path, a="", b="")
    with pytest.raises(ValueError, match=r"got 2 empty file\(s\) from '.*'; choose another"):
        FileTexts("both", find_files(str(tmp_path)), "utf-8")


def test_sizes_are_known_before_anything_is_read(tmp_path: Path) -> None:
    write(tmp_path, a="é", b="12")
    source = FileTexts("both", find_files(str(tmp_path)), "utf-8")
    told: list[int] = []
    assert source.size_bytes == 4
    for text in source.texts(told.append):
        list(text)
    assert sum(told) == 4


def test_file_that_is_gone_or_no_text_is_named(tmp_path: Path) -> None:
    write(tmp_path, a="1")
    source = FileTexts("a", [tmp_path / "a.txt"], "utf-8")
    (tmp_path / "a.txt").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"got other bytes at byte 0 of .*a\.txt"):
        list(next(source.texts(lambda _: None)))
    (tmp_path / "a.txt").unlink()
    with pytest.raises(ValueError, match=r"expected a readable file, got '.*a\.txt': No such file"):
        list(next(source.texts(lambda _: None)))
