"""Goes back to an earlier step: records of later steps are set aside."""

import os
from pathlib import Path

import msgspec

from fedlearn.storage.aside import Aside
from fedlearn.storage.durable import write_durably
from fedlearn.storage.journal.segment import HEADER_BYTES, first_step_of, read_places, segments_in


def cut_journal(folder: Path, step: int, aside: Aside) -> int | None:
    """Sets aside the journal's records of `step` and later steps.

    Gives the byte of the last segment where this step would be appended; None where the step before it is missing.
    """
    segments = segments_in(folder)
    while segments and first_step_of(segments[-1]) >= step:
        path = segments.pop()
        if path.stat().st_size > HEADER_BYTES:
            aside.move(path)
        else:
            path.unlink()
    if not segments:
        return None
    path, end, last, has_later = segments[-1], HEADER_BYTES, -1, False
    for place in read_places(path):
        if place.record.step >= step:
            has_later = True
            break
        end, last = place.end, place.record.step
    if has_later:
        aside.copy(path)
        with path.open("r+b") as file:
            file.truncate(end)
            os.fsync(file.fileno())
    return end if last == step - 1 else None


class _Line(msgspec.Struct):
    step: int


def cut_lines(path: Path, step: int, aside: Aside) -> None:
    """Removes the lines of `step` and later steps from a file of JSON objects, and sets aside a copy of the file.

    Raises:
        StorageError: the disk refuses.
    """
    lines = path.read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if _is_before(line, step)]
    if len(kept) < len(lines):
        aside.copy(path)
        write_durably(path, b"".join(kept))


def _is_before(line: bytes, step: int) -> bool:
    try:
        return msgspec.json.decode(line, type=_Line).step < step
    except (ValueError, RecursionError):  # bytes that are no UTF-8 are a ValueError, too
        return False
