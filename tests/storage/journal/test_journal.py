import errno
import resource
import threading
from pathlib import Path
from typing import BinaryIO

import pytest

from fedlearn.storage.durable import StorageError
from fedlearn.storage.journal import journal as journal_module
from fedlearn.storage.journal import records, syncer
from fedlearn.storage.journal import segment as segment_module
from fedlearn.storage.journal.journal import MissingStepsError, read_journal, read_records, stretches_of
from fedlearn.storage.journal.segment import Header, read_header
from fedlearn.wire.encoding.codec import encode
from tests.patience import LIMIT_S
from tests.storage.journals import (
    IDENTITY,
    digest_of,
    open_journal,
    segment_of,
    steps_in,
    update_of,
    write_steps,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The journal's folder."""
    return tmp_path / "journal"


def test_updates_read_back_as_they_were_written(path: Path) -> None:
    write_steps(path, 3, 4, 5)
    assert [encode(update) for update in read_journal(path, start=3)] == [encode(update_of(step)) for step in (3, 4, 5)]


def test_each_step_is_kept_with_the_digest_that_it_begins_with(path: Path) -> None:
    write_steps(path, 3, 4, 5)
    assert [(record.step, record.digest) for record in read_records(path, start=4)] == [
        (step, digest_of(step)) for step in (4, 5)
    ]
    assert read_header(segment_of(path)) == Header(IDENTITY, 3, digest_of(3))


def test_reopened_journal_goes_on(path: Path) -> None:
    write_steps(path, 0, 1)
    with open_journal(path, 2) as journal:
        assert (journal.next_step, journal.cut_bytes, journal.is_joined) == (2, 0, True)
        journal.append(update_of(2), digest_of(2))
    assert segment_of(path).name == "000000000000"
    assert steps_in(path) == [0, 1, 2]


@pytest.mark.parametrize("step", [0, 1, 3])
def test_step_out_of_turn_is_refused_without_a_trace(path: Path, step: int) -> None:
    write_steps(path, 0, 1)
    before = segment_of(path).read_bytes()
    with open_journal(path, 2) as journal, pytest.raises(StorageError, match=f"expected .* step 2, got {step}"):
        journal.append(update_of(step), bytes(8))
    assert segment_of(path).read_bytes() == before


def test_update_is_in_the_file_when_append_returns_and_on_the_disk_when_close_does(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(syncer, "_sync", lambda _: synced.append(segment_of(path).stat().st_size))
    with open_journal(path, 0) as journal:
        journal.append(update_of(0), bytes(8))
        size = segment_of(path).stat().st_size
        assert steps_in(path) == [0]
    assert synced[-1] == size


def test_update_reaches_the_disk_without_another(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = threading.Event()
    monkeypatch.setattr(syncer, "_sync", lambda _: synced.set())
    with open_journal(path, 0) as journal:
        journal.append(update_of(0), bytes(8))
        assert synced.wait(LIMIT_S)


def test_disk_that_refused_is_reported_at_the_next_step_and_at_the_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = threading.Event()

    def refuse(_: int) -> None:
        refused.set()
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(syncer, "_sync", refuse)
    journal = open_journal(path, 0)
    journal.append(update_of(0), bytes(8))
    assert refused.wait(LIMIT_S)
    journal._syncer._thread.join()
    with pytest.raises(StorageError, match="step 1 could not be written: Input/output error"):
        journal.append(update_of(1), bytes(8))
    with pytest.raises(StorageError, match=r"may not be on the disk: .*; check the disk"):
        journal.close()
    assert steps_in(path) == [0]


def test_tail_torn_at_any_byte_is_cut_and_reported(path: Path) -> None:
    _, _, start, end = write_steps(path, 0, 1, 2)
    segment = segment_of(path)
    whole = segment.read_bytes()
    for size in range(start + 1, end):
        segment.write_bytes(whole[:size])
        problems: list[str] = []
        assert [record.step for record in read_records(path, problems=problems)] == [0, 1]
        assert problems == [f"{segment}: its last {size - start} bytes are an incomplete step"]
        with open_journal(path, 2) as journal:
            assert (journal.next_step, journal.cut_bytes) == (2, size - start)
            journal.append(update_of(2), digest_of(2))
        assert segment.read_bytes() == whole


def test_any_flipped_bit_in_the_last_record_ends_the_journal_before_it(path: Path) -> None:
    _, _, start, end = write_steps(path, 0, 1, 2)
    segment = segment_of(path)
    whole = segment.read_bytes()
    for bit in range(8 * start, 8 * end):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        segment.write_bytes(damaged)
        problems: list[str] = []
        assert [record.step for record in read_records(path, problems=problems)] == [0, 1]
        assert len(problems) == 1


def test_any_flipped_bit_before_the_last_record_costs_the_steps_before_it(path: Path) -> None:
    _, start, end, _ = write_steps(path, 0, 1, 2)
    segment = segment_of(path)
    whole = segment.read_bytes()
    for bit in range(8 * start, 8 * end):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        segment.write_bytes(damaged)
        with pytest.raises(MissingStepsError, match="expected step 1, the journal goes on at 2; restore"):
            steps_in(path)
        problems: list[str] = []
        assert [record.step for record in read_records(path, start=2, problems=problems)] == [2]
        assert problems == [f"{segment}: damaged at byte {start}"]
        assert stretches_of(path, []) == [(0, 1), (2, 3)]


def test_any_flipped_bit_in_the_header_is_told_and_costs_no_step(path: Path) -> None:
    start, *_ = write_steps(path, 0, 1)
    segment = segment_of(path)
    whole = segment.read_bytes()
    for bit in range(8 * start):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        segment.write_bytes(damaged)
        if damaged.startswith(b"fedlearn journal") and damaged[17:18] != b"3":
            continue  # it may be one of another version
        problems: list[str] = []
        assert [record.step for record in read_records(path, identity=IDENTITY, problems=problems)] == [0, 1]
        assert problems == [f"{segment}: damaged at its start"]


@pytest.mark.parametrize("tail", [bytes(1), bytes(4096), b"\xf5UPD" + bytes(8)])
def test_zeros_behind_the_last_record_are_cut(path: Path, tail: bytes) -> None:
    write_steps(path, 0)
    segment = segment_of(path)
    whole = segment.read_bytes()
    segment.write_bytes(whole + tail)
    with open_journal(path, 1) as journal:
        assert journal.cut_bytes == len(tail)
    assert segment.read_bytes() == whole


def test_update_longer_than_any_record_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "MAX_PAYLOAD_BYTES", 300)
    with open_journal(path, 0) as journal, pytest.raises(StorageError, match="at most 300 bytes"):
        journal.append(update_of(0, members=400), bytes(8))


def test_journal_of_older_versions_is_refused_untouched(path: Path) -> None:
    path.write_bytes(b"fedlearn journal 2\n")
    with pytest.raises(StorageError, match="expected a folder of segments, got a file; the run is of an older version"):
        steps_in(path)
    assert path.read_bytes() == b"fedlearn journal 2\n"
    path.unlink()
    write_steps(path, 0)
    segment = segment_of(path)
    segment.write_bytes(segment.read_bytes().replace(b"journal 3", b"journal 4"))
    with pytest.raises(StorageError, match=r"got .*journal 4.*; use the fedlearn that wrote it"):
        steps_in(path)


def test_journal_that_grows_while_it_is_read_is_not_damaged(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, middle, end, _ = write_steps(path, 0, 1, 2, 3)
    segment = segment_of(path)
    whole = segment.read_bytes()
    segment.write_bytes(whole[: (middle + end) // 2])
    read_payload = records._read_payload

    def read_as_it_grows(reader: BinaryIO) -> bytes | None:
        if (payload := read_payload(reader)) is None:
            segment.write_bytes(whole)
        return payload

    monkeypatch.setattr(records, "_read_payload", read_as_it_grows)
    problems: list[str] = []
    assert [record.step for record in read_records(path, problems=problems)] == [0, 1, 2, 3]
    assert problems == []


def test_missing_journal_has_no_steps(path: Path) -> None:
    assert steps_in(path) == []
    assert stretches_of(path, []) == []


def test_record_of_another_version_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_module, "encode", lambda _: b"\x90")
    write_steps(path, 0)
    with pytest.raises(StorageError, match="of this version"):
        steps_in(path)


@pytest.mark.parametrize("room", [0, 5, 100])
def test_full_disk_leaves_the_journal_as_it_was(path: Path, room: int) -> None:
    write_steps(path, 0)
    before = segment_of(path).read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open_journal(path, 1) as journal:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + room, hard))
        try:
            with pytest.raises(StorageError, match="step 1 could not be written"):
                journal.append(update_of(1), bytes(8))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert segment_of(path).read_bytes() == before
        journal.append(update_of(1), bytes(8))
    assert steps_in(path) == [0, 1]


def test_record_with_the_update_of_another_step_is_refused() -> None:
    with pytest.raises(StorageError, match="expected the update of step 3, got that of 4"):
        _ = segment_module.Record(3, bytes(8), encode(update_of(4))).update
