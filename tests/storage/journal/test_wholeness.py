import re
from pathlib import Path

import pytest

from fedlearn.storage.journal.segment import HEADER_BYTES, segments_in
from fedlearn.storage.journal.wholeness import JournalFindings, examine_journal
from tests.storage.journals import IDENTITY, flip, open_journal, write_segments, write_steps

N_STEPS = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def examined(path: Path, *, begin: int = 0, end: int = N_STEPS) -> JournalFindings:
    return examine_journal(path, identity=IDENTITY, begin=begin, end=end)


def swap(one: Path, other: Path) -> None:
    aside = one.rename(one.with_suffix(".aside"))
    other.rename(one)
    aside.rename(other)


def test_whole_journal_has_no_problem(path: Path) -> None:
    write_segments(path, N_STEPS)
    (path / "000000000060.partial").touch()  # of a segment that is being made
    assert examined(path) == (3, [(0, N_STEPS)], [])


@pytest.mark.parametrize("number", [0, 1, 2])
def test_segment_that_is_missing_is_named_by_its_steps(path: Path, number: int) -> None:
    segments = write_segments(path, N_STEPS)
    segments[number].unlink()
    ends = [*(int(segment.name) for segment in segments), N_STEPS]
    (problem,) = examined(path).problems
    assert problem.startswith(f"{path}: steps {ends[number]} to {ends[number + 1] - 1} are missing; ")


def test_no_journal_at_all_misses_every_step(path: Path) -> None:
    for _ in range(2):
        (problem,) = examined(path).problems
        assert problem.startswith(f"{path}: steps 0 to {N_STEPS - 1} are missing; ")
        path.mkdir(exist_ok=True)
    assert examined(path, end=0).problems == []  # nothing was trained yet


def test_segments_that_were_swapped_are_told_each_its_name(path: Path) -> None:
    _, second, third = write_segments(path, N_STEPS)
    swap(second, third)
    found = examined(path)
    assert found.stretches == [(0, N_STEPS)]
    for problem, is_at, belongs in zip(found.problems, (second, third), (third, second), strict=True):
        assert problem.startswith(f"{is_at}: expected the segment that begins at step {int(is_at.name)}, ")
        assert problem.endswith(f"; its name is {belongs.name}")


def test_segment_with_another_number_is_told_its_name(path: Path) -> None:
    _, second, _ = write_segments(path, N_STEPS)
    second.rename(path / f"{int(second.name) + 1:012d}")
    (problem,) = examined(path).problems
    assert problem.endswith(f"; its name is {second.name}")


@pytest.mark.parametrize("name", ["23", "000000000020.copy", "notes.txt"])
def test_file_whose_name_is_no_segments_is_named(path: Path, name: str) -> None:
    last = write_segments(path, N_STEPS)[-1]
    last.rename(path / name)
    stranger, gap = examined(path).problems
    assert stranger.startswith(f"{path / name}: expected nothing but segments")
    assert f"steps {int(last.name)} to {N_STEPS - 1} are missing" in gap


def test_damage_is_named_with_the_step_that_it_took(path: Path) -> None:
    _, second, _ = write_segments(path, N_STEPS)
    flip(second, HEADER_BYTES + 20)
    damage, gap = examined(path).problems
    assert damage == f"{second}: damaged at byte {HEADER_BYTES}"
    assert gap.startswith(f"{path}: step {int(second.name)} is missing; ")


def test_damaged_header_leaves_the_steps_behind_it(path: Path) -> None:
    _, second, _ = write_segments(path, N_STEPS)
    flip(second, HEADER_BYTES - 1)
    assert examined(path) == (3, [(0, N_STEPS)], [f"{second}: damaged at its start"])


def test_steps_that_were_dropped_are_not_missed(path: Path) -> None:
    first, second, _ = write_segments(path, N_STEPS)
    first.unlink()
    assert examined(path, begin=int(second.name)).problems == []
    assert examined(path, begin=int(second.name) + 1).problems == []
    assert len(examined(path, begin=int(second.name) - 1).problems) == 1


def test_journal_that_goes_on_behind_a_gap_is_not_whole(path: Path) -> None:
    write_steps(path, 0, 1)
    with open_journal(path, 5):
        pass
    found = examined(path, end=5)
    assert found.stretches == [(0, 2), (5, 5)]
    assert [re.findall(r"steps \d+ to \d+", problem) for problem in found.problems] == [["steps 2 to 4"]]


def test_segment_of_another_run_is_a_problem_among_others(path: Path) -> None:
    segments_before = write_segments(path, N_STEPS)
    found = examine_journal(path, identity=bytes(16), begin=0, end=N_STEPS)
    assert [problem.split(": expected")[0] for problem in found.problems[:3]] == [str(s) for s in segments_before]
    assert segments_in(path) == segments_before
