from pathlib import Path

import pytest

from fedlearn.storage.durable import StorageError, write_durably


def test_file_is_replaced_in_one_piece(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_durably(path, b"old")
    write_durably(path, b"new")
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("file", b"new")]


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
