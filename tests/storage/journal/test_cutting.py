from pathlib import Path

import pytest

from fedlearn.storage.aside import Aside
from fedlearn.storage.journal.cutting import cut_journal, cut_lines
from fedlearn.storage.journal.segment import read_places, segments_in
from tests.storage.journals import digest_of, flip, open_journal, steps_in, update_of, write_segments


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The journal's folder."""
    return tmp_path / "journal"


@pytest.mark.parametrize("where", ["within the first", "at the second", "within the second", "within the last"])
def test_journal_is_cut_at_a_step_and_goes_on_there(path: Path, where: str) -> None:
    first, second, *_, last = write_segments(path, 60)
    step = {
        "within the first": 1,
        "at the second": int(second.name),
        "within the second": int(second.name) + 1,
        "within the last": int(last.name) + 1,
    }[where]
    whole = {segment.name: segment.read_bytes() for segment in segments_in(path)}
    aside = Aside(path.parent)
    end = cut_journal(path, step, aside)
    assert steps_in(path) == list(range(step))
    assert end == segments_in(path)[-1].stat().st_size
    kept = {Path(name).name: (aside.folder / name).read_bytes() for name in aside.names}
    assert kept == {name: content for name, content in whole.items() if content != content_of(path / name)}
    assert first.exists()
    with open_journal(path, step) as journal:
        assert journal.is_joined
        journal.append(update_of(step), digest_of(step))
    assert steps_in(path) == list(range(step + 1))


def content_of(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def test_journal_without_later_steps_stays_as_it_is(path: Path) -> None:
    write_segments(path, 60)
    aside = Aside(path.parent)
    assert cut_journal(path, 60, aside) is not None
    assert (aside.names, steps_in(path)) == ([], list(range(60)))


def test_cutting_in_the_midst_of_damage_keeps_what_is_behind_it(path: Path) -> None:
    (segment,) = write_segments(path, 10)
    fourth = [*read_places(segment)][4]
    flip(segment, fourth.begin + 20)
    damaged = segment.read_bytes()
    aside = Aside(path.parent)
    assert cut_journal(path, 4, aside) == fourth.begin
    assert steps_in(path) == [0, 1, 2, 3]
    assert (aside.folder / "journal" / segment.name).read_bytes() == damaged


def test_steps_before_that_are_missing_are_told(path: Path) -> None:
    write_segments(path, 10)
    assert cut_journal(path, 12, Aside(path.parent)) is None
    assert cut_journal(path.parent / "none", 0, Aside(path.parent)) is None


def test_lines_of_later_steps_and_torn_ones_are_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [f'{{"step":{step},"loss":1.0}}\n' for step in range(5)]
    path.write_text("".join(lines) + '{"step":')
    aside = Aside(tmp_path)
    cut_lines(path, 3, aside)
    assert path.read_text() == "".join(lines[:3])
    assert (aside.folder / path.name).read_text() == "".join(lines) + '{"step":'
    again = Aside(tmp_path)
    cut_lines(path, 3, again)
    assert again.names == []
