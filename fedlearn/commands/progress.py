"""Lines now and then while many steps are taken again."""

import sys
import time
from collections.abc import Callable
from typing import TextIO

INTERVAL_S = 5.0


def replay_progress(
    stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
) -> Callable[[int], None] | None:
    """Is told each step that was taken again, and says so every few seconds; None where nobody sits at a terminal."""
    shown = stream if stream is not None else sys.stderr
    if shown is None or not shown.isatty():
        return None
    due = clock() + INTERVAL_S

    def tell(step: int) -> None:
        nonlocal due
        if clock() >= due:
            due = clock() + INTERVAL_S
            print(f"replaying the journal: at step {step}", file=shown, flush=True)

    return tell


def data_progress(
    stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
) -> Callable[[int, int], None]:
    """Is told how much of the data is read, of how much, and says so every few seconds where somebody looks."""
    shown = stream if stream is not None else sys.stderr
    due = clock() + INTERVAL_S

    def tell(done: int, total: int) -> None:
        nonlocal due
        if clock() >= due and shown is not None and shown.isatty():
            due = clock() + INTERVAL_S
            print(
                f"reading data: {f'{done / total:.0%}' if total else f'{done / 1e6:,.0f} MB'}", file=shown, flush=True
            )

    return tell
