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
