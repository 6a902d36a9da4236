"""The figures of a run: one JSON object per step, each on a line of `metrics.jsonl`."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from fedlearn.coordination.steps.report import StepReport
from fedlearn.storage.logs.lines import read_last

Relayed = dict[str, tuple[int, int, int]]
"""Members, bytes of their activations through the server, and bytes that their seats report as sent directly, for each
cut of a crew that they crossed, such as "crew 1, cut 2"."""


Kinds = dict[str, tuple[int, int]]
"""Bytes in and out by kind, such as "updates"."""


class StepTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """The traffic on the server's connections in one step."""

    bytes_in: int = 0
    bytes_out: int = 0
    kinds: Kinds = {}
    """The bytes of `bytes_in` and `bytes_out` by kind."""
    relayed: Relayed = {}
    """Activations between seats of crews; those through the server are part of `bytes_in`, and of `bytes_out` as well.
    """


class StepMetrics(StepReport, frozen=True, kw_only=True):
    """What a step measured, and what its server knows of it beside that."""

    shown: dict[str, float]
    """The loss as people read it, by its name, such as bits_per_character; empty where it is not finite."""
    work_per_s: float
    """Work of the members' trials per second, in the task's unit."""
    work: int = 0
    """Work of all these trials; divided by `work_per_s` it gives the seconds that the step took."""
    bytes_in: int
    """Bytes that the server received; this and the other figures of traffic are those of `StepTraffic`."""
    bytes_out: int
    digest: str
    """Digest of the replica after the step, hexadecimal."""
    time: float
    """Seconds since 1970."""
    elapsed_s: float = 0.0
    """Seconds of training since the run began, without the time in which no server had it."""
    validation: dict[str, float] = msgspec.field(default_factory=dict)
    """Figures of the unperturbed weights on held-out data; measured from time to time, and empty in between."""
    relayed: Relayed = msgspec.field(default_factory=dict)
    kinds: Kinds = msgspec.field(default_factory=dict)


def each_once(lines: Iterable[StepMetrics]) -> list[StepMetrics]:
    """The steps in order, each once; the last figures of a step that was repeated after a crash are kept."""
    steps = {line.step: line for line in lines}
    return [steps[number] for number in sorted(steps)]


def read_last_metrics(path: Path, count: int = 1) -> list[StepMetrics]:
    """The last `count` steps, oldest first, read from the end of the file; fewer if there are fewer.

    Torn lines are passed over, and a missing file has none.
    """
    return read_last(path, StepMetrics, count)
