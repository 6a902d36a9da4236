import sys
from pathlib import Path

import pytest

from fedlearn.hub.bodies import RefusedError
from fedlearn.hub.files import below, file_below, files_in, task_below


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    (made / "gpt").mkdir(parents=True)
    (made / "gpt" / "text.txt").write_text("text")
    (made / "digits.py").write_text("task = 1")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "evil.py").write_text("task = 1")
    (tmp_path / "data-too").mkdir()
    (tmp_path / "data-too" / "text.txt").write_text("secret")
    return made


def test_a_name_within_the_folder_is_found(folder: Path) -> None:
    assert file_below(folder, "gpt/text.txt", key="source") == folder / "gpt" / "text.txt"
    assert below(folder, "gpt", key="path") == folder / "gpt"
    assert below(folder, "gpt/../gpt", key="path") == folder / "gpt"


@pytest.mark.parametrize(
    "name",
    [
        "../secret.txt",
        "gpt/../../secret.txt",
        "../data-too/text.txt",
        "/etc/passwd",
        "~/x",
        "",
        ".",
        "none.txt",
        "text.txt\0",
        "x" * 5000,
    ],
)
def test_a_name_that_leads_out_or_nowhere_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(RefusedError, match="source: expected a name within") as refused:
        below(folder, name, key="source")
    assert refused.value.status == 400


@pytest.mark.skipif(sys.platform == "win32", reason="links take a privilege there")
def test_a_link_that_leads_out_is_refused_and_not_listed(folder: Path, tmp_path: Path) -> None:
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "out").symlink_to(tmp_path)
    (folder / "circle").symlink_to(folder / "circle")
    (folder / "task.py").symlink_to(tmp_path / "evil.py")
    for name in ("link.txt", "out/secret.txt", "circle"):
        with pytest.raises(RefusedError):
            below(folder, name, key="source")
    with pytest.raises(RefusedError):
        task_below(folder, "task.py:task")
    assert files_in(folder) == ["digits.py", "gpt/text.txt"]


@pytest.mark.skipif(sys.platform == "win32", reason="links take a privilege there")
def test_a_link_within_the_folder_is_followed(folder: Path) -> None:
    (folder / "again").symlink_to(folder / "gpt")
    assert file_below(folder, "again/text.txt", key="source") == folder / "gpt" / "text.txt"


def test_a_folder_is_no_file(folder: Path) -> None:
    with pytest.raises(RefusedError, match="expected a file, got 'gpt'"):
        file_below(folder, "gpt", key="source")


def test_a_task_is_a_file_and_a_name_in_it(folder: Path) -> None:
    assert task_below(folder, "digits.py:task") == f"{folder / 'digits.py'}:task"


@pytest.mark.parametrize("entry", ["digits.py", "digits.py:", "digits.py:a b", "gpt/text.txt:task", ":task", "x.py:t"])
def test_what_is_no_task_is_refused(folder: Path, entry: str) -> None:
    with pytest.raises(RefusedError):
        task_below(folder, entry)


def test_files_of_no_folder_are_none(tmp_path: Path) -> None:
    assert files_in(tmp_path / "none") == []
