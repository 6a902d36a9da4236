"""What one learner reached, as a row that is said as soon as it is known."""

from collections.abc import Iterable, Iterator
from statistics import median

import msgspec

_WIDTHS = (6, 20, 32, 6, 9, 11, 11, 9, 10)
_HEAD = ("system", "what", "learner", "steps", "seconds", "processor s", "to result s", "accuracy", "loss")


class Row(msgspec.Struct, frozen=True):
    """What one learner reached."""

    system: str
    what: str
    learner: str
    steps: int
    """Steps of the run: of a hub's lone device as many as there were exchanges."""
    seconds: float
    """Seconds of training by the clock."""
    processor_s: float
    """Processor seconds: of training, or of whole processes where these are scripts."""
    accuracy: float | None = None
    loss: float | None = None
    to_result_s: float | None = None
    """Seconds from the request to its result, of jobs over HTTP."""


def head() -> str:
    """The line above rows."""
    return _line(_HEAD)


def line_of(row: Row) -> str:
    """The row as a line below `head`."""
    figures = ["-" if value is None else f"{value:.4g}" for value in (row.to_result_s, row.accuracy, row.loss)]
    return _line(
        (row.system, row.what, row.learner, str(row.steps), f"{row.seconds:.4g}", f"{row.processor_s:.4g}", *figures)
    )


def with_median(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows of one learner, a seed each, and then the median of each of their figures."""
    known = []
    for row in rows:
        known.append(row)
        yield row
    yield msgspec.structs.replace(
        known[0],
        learner=f"{known[0].learner.partition(', seed')[0]}, median of {len(known)}",
        seconds=median(row.seconds for row in known),
        processor_s=median(row.processor_s for row in known),
        accuracy=_median(row.accuracy for row in known),
        loss=_median(row.loss for row in known),
        to_result_s=_median(row.to_result_s for row in known),
    )


def _median(figures: Iterable[float | None]) -> float | None:
    """The median of a figure that all rows of a learner have, or none."""
    found = [figure for figure in figures if figure is not None]
    return median(found) if found else None


def _line(cells: tuple[str, ...]) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, _WIDTHS, strict=True))
