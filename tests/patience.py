"""How long tests wait for what has to come."""

import time
from collections.abc import Callable

LIMIT_S = 300.0
"""Whatever has not come by then never will, even on a machine that has much else to do."""

LOOK_S = 0.02


def until(is_so: Callable[[], object], what: str = "it never came to that", *, limit_s: float = LIMIT_S) -> None:
    """Waits until something is so that can only be looked at again and again, such as a file of another process."""
    ends = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < ends, what
        time.sleep(LOOK_S)
