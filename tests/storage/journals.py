"""Journals of small steps, and what checkpoints beside them need."""

from pathlib import Path

import msgspec
import numpy as np

from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.optimizers import Adam
from fedlearn.es.update import Update
from fedlearn.storage.journal.journal import Journal, read_journal
from fedlearn.storage.journal.segment import Header, segments_in

IDENTITY = b"the run's own id"


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


def layout_text(*tensors: tuple[str, tuple[int, ...]]) -> str:
    """A layout as checkpoints hold it."""
    specs = tuple(TensorSpec(name, shape) for name, shape in tensors)
    return msgspec.json.encode(ParameterLayout(specs)).decode()


def digest_of(step: int) -> bytes:
    return step.to_bytes(8, "big")


def open_journal(folder: Path, step: int, keep_bytes: int | None = None) -> Journal:
    return Journal.open(folder, Header(IDENTITY, step, digest_of(step)), keep_bytes=keep_bytes)


def write_steps(folder: Path, *steps: int) -> list[int]:
    """Appends these steps; gives the segment's size before the first and after each."""
    with open_journal(folder, steps[0]) as journal:
        sizes = [journal.path.stat().st_size]
        for step in steps:
            journal.append(update_of(step), digest_of(step))
            sizes.append(journal.path.stat().st_size)
    return sizes


def write_segments(folder: Path, n_steps: int) -> list[Path]:
    """Appends so many steps to segments of a few each."""
    with open_journal(folder, 0, keep_bytes=1) as journal:
        for step in range(n_steps):
            journal.append(update_of(step), digest_of(step))
    return segments_in(folder)


def segment_of(folder: Path) -> Path:
    (path,) = segments_in(folder)
    return path


def steps_in(folder: Path, start: int = 0) -> list[int]:
    return [update.step for update in read_journal(folder, start=start)]


def flip(path: Path, byte: int) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 1
    path.write_bytes(content)
