import errno
import resource
import threading
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

from fedlearn.es.optimizers import Adam
from fedlearn.es.update import Update
from fedlearn.storage import journal as journal_module
from fedlearn.storage.durable import StorageError
from fedlearn.storage.journal import Journal, read_journal
from fedlearn.wire.codec import encode


def update_of(step: int, members: int = 4) -> Update:
    return Update(
        step=step,
        block=bytes(16),
        spans=((0, members),),
        utilities=np.arange(members).astype(np.int8),
        rank=1,
        group_size=2,
        gradient_scale=0.1,
        optimizer=Adam(0.006),
        antithetic=False,
        weight_decay=0.0,
        decay_towards="zero",
        elapsed_s=0.0,
        shaping_scale=1.5,
    )


def write_steps(path: Path, *steps: int) -> list[int]:
    """Appends these steps; gives the file's size before the first and after each."""
    with Journal.open(path) as journal:
        sizes = [path.stat().st_size]
        for step in steps:
            journal.append(update_of(step))
            sizes.append(path.stat().st_size)
    return sizes


def steps_in(path: Path) -> list[int]:
    return [update.step for update in read_journal(path)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def test_updates_read_back_as_they_were_written(path: Path) -> None:
    write_steps(path, 3, 4, 5)
    assert [encode(update) for update in read_journal(path)] == [encode(update_of(step)) for step in (3, 4, 5)]


def test_new_journal_is_empty_and_takes_any_first_step(path: Path) -> None:
    with Journal.open(path) as journal:
        assert (journal.next_step, journal.cut_bytes) == (None, 0)
        assert steps_in(path) == []
        journal.append(update_of(7))
        assert journal.next_step == 8


def test_reopened_journal_goes_on(path: Path) -> None:
    write_steps(path, 0, 1)
    with Journal.open(path) as journal:
        assert (journal.next_step, journal.cut_bytes) == (2, 0)
        journal.append(update_of(2))
    assert steps_in(path) == [0, 1, 2]


@pytest.mark.parametrize("step", [0, 1, 3])
def test_step_out_of_turn_is_refused_without_a_trace(path: Path, step: int) -> None:
    write_steps(path, 0, 1)
    before = path.read_bytes()
    with Journal.open(path) as journal, pytest.raises(StorageError, match=f"expected .* step 2, got {step}"):
        journal.append(update_of(step))
    assert path.read_bytes() == before


def test_update_is_in_the_file_when_append_returns_and_on_the_disk_when_close_does(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(journal_module, "_sync", lambda _: synced.append(path.stat().st_size))
    with Journal.open(path) as journal:
        journal.append(update_of(0))
        size = path.stat().st_size
        assert steps_in(path) == [0]
    assert synced[-1] == size


def test_update_reaches_the_disk_without_another(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = threading.Event()
    monkeypatch.setattr(journal_module, "_sync", lambda _: synced.set())
    with Journal.open(path) as journal:
        journal.append(update_of(0))
        assert synced.wait(10.0)


def test_disk_that_refused_is_reported_at_the_next_step_and_at_the_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = threading.Event()

    def refuse(_: int) -> None:
        refused.set()
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(journal_module, "_sync", refuse)
    journal = Journal.open(path)
    journal.append(update_of(0))
    assert refused.wait(10.0)
    journal._syncer._thread.join()
    with pytest.raises(StorageError, match="step 1 could not be written: Input/output error"):
        journal.append(update_of(1))
    with pytest.raises(StorageError, match=r"may not be on the disk: .*; see that the disk is well"):
        journal.close()
    assert steps_in(path) == [0]


def test_tail_torn_at_any_byte_is_cut_and_reported(path: Path) -> None:
    _, _, start, end = write_steps(path, 0, 1, 2)
    whole = path.read_bytes()
    for size in range(start + 1, end):
        path.write_bytes(whole[:size])
        assert steps_in(path) == [0, 1]
        with Journal.open(path) as journal:
            assert (journal.next_step, journal.cut_bytes) == (2, size - start)
            journal.append(update_of(2))
        assert path.read_bytes() == whole


def test_any_flipped_bit_in_the_last_record_cuts_it(path: Path) -> None:
    _, _, start, end = write_steps(path, 0, 1, 2)
    whole = path.read_bytes()
    for bit in range(8 * start, 8 * end):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with Journal.open(path) as journal:
            assert (journal.next_step, journal.cut_bytes) == (2, end - start)


def test_any_flipped_bit_before_the_last_record_is_refused(path: Path) -> None:
    _, start, end, _ = write_steps(path, 0, 1, 2)
    whole = path.read_bytes()
    for bit in range(8 * start, 8 * end):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(StorageError, match=f"damaged at byte {start}"):
            Journal.open(path)
        assert path.read_bytes() == damaged
        with pytest.raises(StorageError, match=f"damaged at byte {start}"):
            steps_in(path)


@pytest.mark.parametrize("tail", [bytes(1), bytes(4096), b"\xf5UPD" + bytes(8)])
def test_zeros_behind_the_last_record_are_cut(path: Path, tail: bytes) -> None:
    write_steps(path, 0)
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    with Journal.open(path) as journal:
        assert (journal.next_step, journal.cut_bytes) == (1, len(tail))
    assert path.read_bytes() == whole


def test_tail_longer_than_any_record_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_steps(path, 0)
    monkeypatch.setattr(journal_module, "MAX_RECORD_BYTES", 300)
    path.write_bytes(path.read_bytes() + bytes(313))
    with pytest.raises(StorageError, match="damaged at byte"):
        Journal.open(path)


def test_update_longer_than_any_record_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "MAX_RECORD_BYTES", 300)
    with Journal.open(path) as journal, pytest.raises(StorageError, match="at most 300 bytes"):
        journal.append(update_of(0, members=400))


@pytest.mark.parametrize("content", [b"fedlearn journ", b"fedlearn journal 1\n", bytes(100)])
def test_other_files_are_refused_untouched(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StorageError, match="it is no journal, or one of another version"):
        Journal.open(path)
    assert path.read_bytes() == content


def test_empty_file_is_a_new_journal(path: Path) -> None:
    path.touch()
    assert steps_in(path) == []
    write_steps(path, 4, 5)
    assert steps_in(path) == [4, 5]


def test_journal_that_grows_while_it_is_read_is_not_damaged(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, middle, end, _ = write_steps(path, 0, 1, 2, 3)
    whole = path.read_bytes()
    path.write_bytes(whole[: (middle + end) // 2])
    read_record = journal_module._read_record

    def read_as_it_grows(reader: BinaryIO) -> bytes | None:
        if (payload := read_record(reader)) is None:
            path.write_bytes(whole)
        return payload

    monkeypatch.setattr(journal_module, "_read_record", read_as_it_grows)
    assert steps_in(path) == [0, 1, 2, 3]


def test_missing_journal_cannot_be_read(path: Path) -> None:
    with pytest.raises(StorageError, match="there is none"):
        steps_in(path)


def test_gap_between_steps_is_refused(tmp_path: Path, path: Path) -> None:
    start, *_ = write_steps(path, 0)
    write_steps(tmp_path / "other", 2)
    path.write_bytes(path.read_bytes() + (tmp_path / "other").read_bytes()[start:])
    with pytest.raises(StorageError, match=r"expected step 1 .* got 2"):
        steps_in(path)


def test_record_of_another_version_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "encode", lambda _: b"\x90")
    write_steps(path, 0)
    with pytest.raises(StorageError, match="of this version"):
        Journal.open(path)


@pytest.mark.parametrize("room", [0, 5, 100])
def test_full_disk_leaves_the_journal_as_it_was(path: Path, room: int) -> None:
    write_steps(path, 0)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal.open(path) as journal:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + room, hard))
        try:
            with pytest.raises(StorageError, match="step 1 could not be written"):
                journal.append(update_of(1))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.read_bytes() == before
        journal.append(update_of(1))
    assert steps_in(path) == [0, 1]
