"""Shows a bar during a replay."""

from collections.abc import Iterator
from contextlib import contextmanager

from fedlearn.runs.history import StepDone
from fedlearn.runs.run import Run
from fedlearn.storage.logs.metrics import read_last_metrics
from fedlearn.terminal.bars import Bars


@contextmanager
def replaying(bars: Bars, run: Run, *, until: int | None = None) -> Iterator[StepDone]:
    """Gives the callback for each step that is taken again: up to `until`, else the last one of the run's metrics."""
    last = read_last_metrics(run.folder.metrics)
    end = until if until is not None else last[-1].step + 1 if last else None
    with bars.bar("replaying the journal", "steps") as bar:
        begun: int | None = None

        def tell(step: int) -> None:
            nonlocal begun
            if begun is None:
                begun = step - 1
            bar.reach(step - begun, max(end, step) - begun if end is not None else None)

        yield tell
