"""What happened in a run: one JSON object per step, each on a line of `metrics.jsonl`."""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

_TAIL_BYTES = 65536
"""Bytes read from the end at first, a few hundred lines; doubled until they hold the lines asked for."""


Relayed = dict[str, tuple[int, int]]
"""Members, and bytes of their activations, by the cut of a crew that they crossed, such as "crew 1, cut 2"."""


class StepMetrics(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The figures of one step."""

    step: int
    loss: float | None
    """Mean over the members; None (or NaN, which JSON cannot hold) where it is not finite."""
    shown: dict[str, float]
    """The loss as people read it, by its name, such as bits_per_character; empty where it is not finite."""
    members: int
    work_per_s: float
    """Work of the members' trials per second, in the task's unit."""
    work: int = 0
    """Work of all these trials; divided by `work_per_s` it gives the seconds that the step took."""
    volunteers: int
    bytes_in: int
    bytes_out: int
    digest: str
    """Digest of the replica after the step, hexadecimal."""
    time: float
    """Seconds since 1970."""
    elapsed_s: float = 0.0
    """Seconds of training since the run began, without the time in which no server had it."""
    validation: dict[str, float] = {}
    """Figures of the unperturbed weights on held-out data; measured from time to time, and empty in between."""
    relayed: Relayed = {}
    """What seats of crews sent to one another through the server; part of `bytes_in`, and as much of `bytes_out`."""


def each_once(lines: Iterable[StepMetrics]) -> list[StepMetrics]:
    """The steps in order, each once; of a step that was taken again after a crash, the last figures stay."""
    steps = {line.step: line for line in lines}
    return [steps[number] for number in sorted(steps)]


def read_last_metrics(path: Path, count: int = 1) -> list[StepMetrics]:
    """The last `count` steps, oldest first, read from the end of the file; fewer if there are fewer.

    Torn lines are passed over, and a missing file has none.
    """
    if not path.exists():
        return []
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        wanted = _TAIL_BYTES
        while True:
            file.seek(max(0, size - wanted))
            found = _decode_lines(file.read(min(size, wanted)))
            if len(found) >= count or wanted >= size:
                return found[-count:] if count else []
            wanted *= 2


def _decode_lines(text: bytes) -> list[StepMetrics]:
    found = []
    for line in text.splitlines():
        try:
            found.append(msgspec.json.decode(line, type=StepMetrics))
        except (ValueError, RecursionError):  # bytes that are no UTF-8 are a ValueError, too
            continue
    return found
