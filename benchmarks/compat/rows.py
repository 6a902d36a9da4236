"""What one learner reached, as a row that is said as soon as it is known."""

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


def _line(cells: tuple[str, ...]) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, _WIDTHS, strict=True))
