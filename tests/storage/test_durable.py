import os
import stat
from pathlib import Path

import pytest

from fedlearn.storage.durable import StorageError, replace_file, write_durably


def test_file_is_replaced_in_one_piece(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_durably(path, b"old")
    write_durably(path, b"new")
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("file", b"new")]


def test_content_and_then_the_name_of_a_file_are_brought_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []

    def sync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor), (tmp_path / "file").exists()))

    monkeypatch.setattr("os.fsync", sync)
    write_durably(tmp_path / "file", b"content")
    (content, is_named_first), (folder, is_named_then) = synced
    assert (content.st_ino, content.st_size, is_named_first) == ((tmp_path / "file").stat().st_ino, 7, False)
    assert (folder.st_ino, is_named_then) == (tmp_path.stat().st_ino, True)


def test_a_folder_that_is_not_brought_to_the_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_on_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.fsync", fail_on_folders)
    with pytest.raises(StorageError, match="file: could not be written: Input/output error"):
        write_durably(tmp_path / "file", b"content")


def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "file"
    write_durably(path, b"old")
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(StorageError, match=f"{path}: could not be written: No space left"):
        write_durably(path, b"new")
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("file", b"old")]


def test_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder").touch()
    with pytest.raises(StorageError, match="folder/file: could not be written"):
        write_durably(tmp_path / "folder" / "file", b"new")


def test_view_is_replaced_in_one_piece_and_nothing_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.fsync", fail)
    replace_file(tmp_path / "file", b"old")
    replace_file(tmp_path / "file", b"new")
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("file", b"new")]
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match="folder: could not be written"):
        replace_file(tmp_path / "folder", b"new")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder"]
