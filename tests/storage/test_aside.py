import os
from pathlib import Path

import pytest

from fedlearn.storage.aside import Aside
from fedlearn.storage.durable import StorageError


def test_files_keep_their_names_in_a_folder_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    for name in ("journal/1", "metrics.jsonl"):
        (tmp_path / name).write_text(name)
    aside = Aside(tmp_path)
    assert not (tmp_path / "set-aside").exists()
    aside.move(tmp_path / "journal/1")
    aside.copy(tmp_path / "metrics.jsonl")
    assert aside.names == ["journal/1", "metrics.jsonl"]
    assert aside.folder == tmp_path / "set-aside/1"
    assert [(aside.folder / name).read_text() for name in aside.names] == aside.names
    assert [(tmp_path / name).exists() for name in aside.names] == [False, True]


def test_nothing_that_was_set_aside_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for number in ("1", "2"):
        path.write_text(number)
        aside = Aside(tmp_path)
        aside.move(path)
        assert (tmp_path / "set-aside" / number / "file").read_text() == number


def test_disk_that_refuses_is_told(tmp_path: Path) -> None:
    (tmp_path / "set-aside").touch()
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="set-aside"):
        Aside(tmp_path).move(tmp_path / "file")
    assert (tmp_path / "file").exists()


def test_what_was_set_aside_is_not_back_after_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[int, bool]] = []
    path = tmp_path / "file"
    path.touch()
    aside = Aside(tmp_path)
    aside.folder.mkdir(parents=True)
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append((os.fstat(descriptor).st_ino, path.exists())))
    aside.move(path)
    assert synced == [(tmp_path.stat().st_ino, False), (aside.folder.stat().st_ino, False)]
