import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from fedlearn.storage.durable import StorageError
from fedlearn.storage.journal import journal as journal_module
from fedlearn.storage.journal import syncer
from fedlearn.storage.journal.journal import MissingStepsError, read_records, stretches_of
from fedlearn.storage.journal.segment import HEADER_BYTES, Header, create_segment, read_header, read_places, segments_in
from tests.storage.journals import (
    IDENTITY,
    digest_of,
    flip,
    open_journal,
    steps_in,
    update_of,
    write_segments,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The journal's folder."""
    return tmp_path / "journal"


def test_segments_end_at_their_size_and_are_named_by_their_first_step(path: Path) -> None:
    segments = write_segments(path, 60)
    assert len(segments) > 2
    assert all(4096 - 300 < segment.stat().st_size <= 4096 for segment in segments[:-1])
    for segment in segments:
        first = next(read_places(segment)).record
        assert (first.step, read_header(segment)) == (int(segment.name), Header(IDENTITY, first.step, first.digest))
    assert steps_in(path) == list(range(60))
    assert stretches_of(path, []) == [(0, 60)]


def test_a_segment_is_on_the_disk_before_the_next_one_begins(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: dict[str, int] = {}

    def sync(descriptor: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{descriptor}")).name
        synced[name] = os.fstat(descriptor).st_size

    create = create_segment

    def create_after(folder: Path, header: Header) -> Path:
        assert all(synced[segment.name] == segment.stat().st_size for segment in segments_in(folder))
        return create(folder, header)

    monkeypatch.setattr(syncer.Syncer, "request", lambda _: None)
    monkeypatch.setattr(syncer, "_sync", sync)
    monkeypatch.setattr(journal_module, "create_segment", create_after)
    assert len(write_segments(path, 60)) > 2


def test_full_disk_at_a_change_of_segments_leaves_the_journal_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_steps = len(steps_in(path)) or len(list(read_places(write_segments(path, 60)[0])))
    for segment in segments_in(path):
        segment.unlink()
    with open_journal(path, 0, keep_bytes=1) as journal:
        for step in range(n_steps):
            journal.append(update_of(step), digest_of(step))
        with monkeypatch.context() as full:
            full.setattr(journal_module, "create_segment", Mock(side_effect=StorageError("the disk is full")))
            with pytest.raises(StorageError, match="the disk is full"):
                journal.append(update_of(n_steps), digest_of(n_steps))
        assert steps_in(path) == list(range(n_steps))
        journal.append(update_of(n_steps), digest_of(n_steps))
    assert [int(segment.name) for segment in segments_in(path)] == [0, n_steps]


def test_only_the_segments_that_are_needed_are_read(path: Path) -> None:
    *older, last = write_segments(path, 60)
    for segment in older:
        segment.write_bytes(b"")
    first = int(last.name)
    for start in (first, first + 1):
        problems: list[str] = []
        steps = [record.step for record in read_records(path, start=start, problems=problems)]
        assert (steps, problems) == (list(range(start, 60)), [])
    with open_journal(path, 60) as journal:
        assert journal.is_joined


def test_damage_in_one_segment_leaves_the_others(path: Path) -> None:
    first, second, third, *_ = write_segments(path, 60)
    flip(second, HEADER_BYTES + 20)
    problems: list[str] = []
    stretches = stretches_of(path, problems)
    assert stretches == [(0, int(second.name)), (int(second.name) + 1, 60)]
    assert problems == [f"{second}: damaged at byte {HEADER_BYTES}"]
    assert steps_in(path, start=int(third.name)) == list(range(int(third.name), 60))
    with pytest.raises(MissingStepsError, match=f"expected step {int(second.name)}"):
        steps_in(path, start=int(first.name))


@pytest.mark.parametrize("left", [0, 10, HEADER_BYTES - 1, HEADER_BYTES])
def test_change_of_segments_that_a_crash_cut_short_goes_on(path: Path, left: int) -> None:
    *_, last = write_segments(path, 60)
    step = int(last.name)
    last.write_bytes(last.read_bytes()[:left])
    (path / f"{step + 1:012d}.partial").touch()
    assert steps_in(path) == list(range(step))
    with open_journal(path, step, keep_bytes=1) as journal:
        assert journal.is_joined
        journal.append(update_of(step), digest_of(step))
    assert steps_in(path) == list(range(step + 1))
    assert not (path.parent / "set-aside").exists()
    assert not (path / f"{step + 1:012d}.partial").exists()


def test_segment_of_another_run_is_refused(path: Path) -> None:
    segment = write_segments(path, 60)[1]
    with pytest.raises(StorageError, match=rf"{segments_in(path)[0]}: expected a segment of this run \({'00' * 16}"):
        list(read_records(path, identity=bytes(16)))
    segment.write_bytes(segment.read_bytes())
    create_segment(path, Header(bytes(16), int(segment.name), bytes(8)))
    with pytest.raises(StorageError, match=f"{segment}: expected a segment of this run"):
        list(read_records(path, identity=IDENTITY))


@pytest.mark.parametrize(
    ("keep_bytes", "before", "n_dropped"), [(1, 1000, 2), (1, 0, 0), (None, 1000, 0), (10**6, 1000, 0)]
)
def test_segments_before_a_step_go_once_the_journal_is_above_its_bound(
    path: Path, keep_bytes: int | None, before: int, n_dropped: int
) -> None:
    segments = write_segments(path, 60)
    assert len(segments) == 3
    with open_journal(path, 60, keep_bytes=keep_bytes) as journal:
        journal.trim(before=before)
        assert journal.length_bytes == sum(segment.stat().st_size - HEADER_BYTES for segment in segments_in(path))
    assert segments_in(path) == segments[n_dropped:]


def test_bound_may_change_while_the_journal_is_open(path: Path) -> None:
    with open_journal(path, 0) as journal:
        for step in range(60):
            journal.append(update_of(step), digest_of(step))
        assert len(segments_in(path)) == 1
        journal.keep(1)
        journal.append(update_of(60), digest_of(60))
        journal.trim(before=60)
        assert segments_in(path) == [journal.path]
        assert journal.path.name.endswith("60")


def test_segment_that_a_step_lies_in_stays(path: Path) -> None:
    segments = write_segments(path, 60)
    with open_journal(path, 60, keep_bytes=1) as journal:
        journal.trim(before=int(segments[2].name) - 1)
        assert segments_in(path) == segments[1:]
        journal.trim(before=int(segments[2].name))
        assert segments_in(path) == segments[2:]
    with pytest.raises(MissingStepsError, match=f"expected step 0, the journal goes on at {int(segments[2].name)}"):
        steps_in(path)


def test_journal_stays_at_its_bound_while_the_checkpoints_follow(path: Path) -> None:
    with open_journal(path, 0, keep_bytes=3 * 4096) as journal:
        for step in range(300):
            journal.append(update_of(step), digest_of(step))
            journal.trim(before=step)
            assert journal.length_bytes <= 4 * 4096
        assert journal.length_bytes > 2 * 4096


def test_step_that_is_larger_than_a_segment_has_one_of_its_own(path: Path) -> None:
    with open_journal(path, 0, keep_bytes=1) as journal:
        for step in range(3):
            journal.append(update_of(step, members=10_000), digest_of(step))
        assert journal.length_bytes == sum(segment.stat().st_size - HEADER_BYTES for segment in segments_in(path))
        assert [int(segment.name) for segment in segments_in(path)] == [0, 1, 2]
        assert steps_in(path) == [0, 1, 2]
        journal.trim(before=2)
    assert [int(segment.name) for segment in segments_in(path)] == [2]


def test_segment_without_steps_behind_missing_ones_is_a_stretch_of_its_own(path: Path) -> None:
    write_segments(path, 10)
    with open_journal(path, 15) as journal:
        assert not journal.is_joined
    assert stretches_of(path, []) == [(0, 10), (15, 15)]


def test_journal_goes_on_in_a_new_segment_behind_a_damaged_header(path: Path) -> None:
    (segment,) = write_segments(path, 2)
    flip(segment, 25)
    with open_journal(path, 2) as journal:
        assert journal.is_joined
        journal.append(update_of(2), digest_of(2))
    assert [int(segment.name) for segment in segments_in(path)] == [0, 2]
    assert stretches_of(path, []) == [(0, 3)]
