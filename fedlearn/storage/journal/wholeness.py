"""Checks that a journal is whole: every segment under its own name, and every step of the run in one of them."""

from pathlib import Path
from typing import NamedTuple

from fedlearn.storage.durable import PARTIAL_SUFFIX, StorageError
from fedlearn.storage.journal.journal import Stretch, check_header, joined, stretches_in
from fedlearn.storage.journal.segment import segments_in


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
        others = set(folder.iterdir()) - set(segments)
        problems += [
            f"{path}: expected nothing but segments, each named by its first step in twelve digits; "
            "put it back under its own name, or move it out of the folder"
            for path in sorted(others)
            if path.suffix != PARTIAL_SUFFIX
        ]
    for path in segments:
        try:
            check_header(path, identity, problems)
            stretches += stretches_in(path, problems)
        except StorageError as error:
            problems.append(str(error))
    steps = joined(stretches)
    return JournalFindings(len(segments), steps, problems + _gaps(folder, steps, begin=begin, end=end))


def _gaps(folder: Path, stretches: list[Stretch], *, begin: int, end: int) -> list[str]:
    """Sentences about missing steps, one for each gap."""
    problems, expected = list[str](), begin
    for first, following in [*stretches, Stretch(end, end)]:
        if first > expected:
            missing = f"step {expected} is" if first == expected + 1 else f"steps {expected} to {first - 1} are"
            problems.append(f"{folder}: {missing} missing; restore the segments that have them from a copy")
        expected = max(expected, following)
    return problems
