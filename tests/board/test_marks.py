import os
from pathlib import Path

from fedlearn.board.marks import birth_of, timeline_of
from fedlearn.storage.runs import RunFolder
from fedlearn.system.files import mark_of


def folder_in(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    folder.origin.write_text("begun")
    folder.metrics.write_text("one\n")
    return folder


def rewrite(path: Path, text: str) -> None:
    """Another file takes the place of this one, as a rollback does."""
    path.with_suffix(".new").write_text(text)
    os.replace(path.with_suffix(".new"), path)


def test_no_file_has_no_mark(tmp_path: Path) -> None:
    assert mark_of(tmp_path / "nothing") == ()


def test_a_run_that_goes_on_stays_on_its_timeline(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    before, mark = timeline_of(folder), mark_of(folder.metrics)
    with open(folder.metrics, "a") as file:
        file.write("two\n")
    assert timeline_of(folder) == before
    assert mark_of(folder.metrics) != mark


def test_a_run_that_was_taken_back_is_on_another_timeline(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    before, birth = timeline_of(folder), birth_of(folder)
    rewrite(folder.metrics, "one\n")
    assert timeline_of(folder) != before
    assert birth_of(folder) == birth


def test_a_run_that_was_made_anew_is_born_again(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    before = birth_of(folder)
    rewrite(folder.origin, "begun")
    assert birth_of(folder) != before
