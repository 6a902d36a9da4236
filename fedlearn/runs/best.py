"""The step of a run whose weights did best on held-out data."""

import math
from typing import Literal, TypeVar

from fedlearn.runs.run import Run
from fedlearn.storage.logs.lines import read_lines
from fedlearn.storage.logs.samples import Sample

SIGNS = {"return": 1.0, "accuracy": 1.0, "bits_per_character": -1.0, "loss": -1.0}
"""The figures by which weights can be compared, the first of which decides: 1 where more is better, else -1."""

Number = TypeVar("Number", bound=int | None)

Step = int | Literal["best"] | None
"""A step of a run: its number, the one with the best weights, or None for the newest."""


def number_of(run: Run, step: Number | Literal["best"]) -> Number | int:
    """The number of a step; None for the newest.

    Raises:
        ValueError: nothing was measured by which the best could be told.
    """
    return best_step(run) if step == "best" else step


def best_step(run: Run) -> int:
    """The step whose weights did best of those that the run looked at, and of equal ones the newest.

    Raises:
        ValueError: nothing was measured by which that could be told.
    """
    samples = list(read_lines(run.folder.samples, Sample))
    for name, sign in SIGNS.items():
        measured = [(sample.figures.get(name), sample.step) for sample in samples]
        found = [(sign * value, step) for value, step in measured if value is not None and math.isfinite(value)]
        if found:
            return max(found)[1]
    named = sorted({name for sample in samples for name in sample.figures})
    raise ValueError(
        f"step: expected a run that looked at its weights and measured one of {', '.join(SIGNS)}, to tell which are "
        f"best, got {', '.join(named) or 'no figures'}; give the number of a step"
    )
