"""When a process that died is started again: after pauses that grow, and no more if it keeps dying at once."""

from typing import final

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0

AT_ONCE_S = 5.0
"""A process that lives shorter has not come to its work."""

SOUND_S = 60.0
"""After a process has lived longer, pauses begin with the shortest again."""

MOST_AT_ONCE = 5


@final
class Restarts:
    """Counts the deaths of one process."""

    def __init__(self) -> None:
        self._pause_s = FIRST_PAUSE_S
        self._n_at_once = 0

    def died(self, lived_s: float) -> float | None:
        """Seconds until it is to be started again; None where that is hopeless."""
        self._n_at_once = self._n_at_once + 1 if lived_s < AT_ONCE_S else 0
        if self._n_at_once == MOST_AT_ONCE:
            return None
        if lived_s >= SOUND_S:
            self._pause_s = FIRST_PAUSE_S
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return pause_s
