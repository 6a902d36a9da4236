"""Checks that a journal is whole: every segment under its own name, and every step of the run in one of them."""

from pathlib import Path
from typing import NamedTuple

from fedlearn.storage.durable import PARTIAL_SUFFIX, StorageError
from fedlearn.storage.journal.journal import Stretch, check_header, read_steps
from fedlearn.storage.journal.segment import first_step_of, name_of, read_header, segments_in


class JournalFindings(NamedTuple):
    """The steps of a journal, and what is wrong with it."""

    n_segments: int
    stretches: list[Stretch]
    """The steps that can be read, in order, whatever the names of their files."""
    problems: list[str]


def examine_journal(folder: Path, *, identity: bytes, begin: int, end: int) -> JournalFindings:
    """Reads a whole journal of the run with this identity; it must lead from step `begin`, at the latest, to `end`."""
    segments, problems, stretches = segments_in(folder), list[str](), list[Stretch]()
    if folder.is_dir():
        strangers = set(folder.iterdir()) - set(segments)
        problems += [
            f"{path}: expected nothing but segments, each named by its first step in twelve digits; "
            "put it back under its own name, or move it out of the folder"
            for path in sorted(strangers)
            if path.suffix != PARTIAL_SUFFIX
        ]
    for path in segments:
        try:
            check_header(path, identity, problems)
            stretches += _stretches_of(path, problems)
        except StorageError as error:
            problems.append(str(error))
    joined = _joined(stretches)
    return JournalFindings(len(segments), joined, problems + _gaps(folder, joined, begin=begin, end=end))


def _stretches_of(path: Path, problems: list[str]) -> list[Stretch]:
    """The steps of one segment; errors of their order, and of the segment's name, are added to `problems`."""
    header = read_header(path)
    first = first_step_of(path) if header is None else header.step
    if first != first_step_of(path):
        problems.append(
            f"{path}: expected the segment that begins at step {first_step_of(path)}, got the one that begins at "
            f"{first}; its name is {name_of(first)}"
        )
    found = [Stretch(first, first)]
    for record in read_steps(path, problems):
        if record.step == found[-1].end:
            found[-1] = found[-1]._replace(end=record.step + 1)
        else:
            found.append(Stretch(record.step, record.step + 1))
    return found


def _joined(stretches: list[Stretch]) -> list[Stretch]:
    """The stretches by step; those that touch or overlap are one."""
    joined: list[Stretch] = []
    for stretch in sorted(stretches):
        if joined and stretch.first <= joined[-1].end:
            joined[-1] = joined[-1]._replace(end=max(joined[-1].end, stretch.end))
        else:
            joined.append(stretch)
    return joined


def _gaps(folder: Path, stretches: list[Stretch], *, begin: int, end: int) -> list[str]:
    """Sentences about missing steps, one for each gap."""
    problems, expected = list[str](), begin
    for first, following in [*stretches, Stretch(end, end)]:
        if first > expected:
            missing = f"step {expected} is" if first == expected + 1 else f"steps {expected} to {first - 1} are"
            problems.append(f"{folder}: {missing} missing; restore the segments that have them from a copy")
        expected = max(expected, following)
    return problems
