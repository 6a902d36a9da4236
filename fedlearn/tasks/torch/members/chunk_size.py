"""The number of members that run at once, found by measuring the work itself.

If it is small the processor waits for Python; if it is large the members do not fit into its caches.
"""

from typing import final

FIRST_SIZE = 8
GAIN = 0.97
"""The greatest share of the best time so far at which a size counts as faster."""
SAMPLES = 2
"""Number of pieces by which a size is judged; the fastest counts, since other programs only delay."""
ENOUGH_SAMPLES = 8
"""Number of pieces of the best size after which its time is certain enough to be compared with others."""
PATIENCE = 2
"""Number of sizes in a row that may be no faster before the search ends."""


@final
class ChunkSize:
    """A search for the size of the pieces in which a population runs; it doubles while that is faster."""

    def __init__(self, limit: int, first_size: int = FIRST_SIZE) -> None:
        """`limit` is the most members that fit into memory at once, at least 1."""
        self._limit = limit
        self._size = min(first_size, limit)
        self._samples: list[float] = []
        self._best: tuple[float, int] | None = None
        self._n_best_samples = 0
        self._failures = 0
        self._is_found = False

    @property
    def best(self) -> tuple[float, int] | None:
        """The seconds per member at the fastest size so far, and that size; None before the first measurement."""
        return self._best

    def again(self) -> "ChunkSize":
        """Another search, which begins one size below the best, in case that was too large."""
        return ChunkSize(self._limit, FIRST_SIZE if self._best is None else max(self._best[1] // 2, FIRST_SIZE))

    def is_sure(self, n_members: int) -> bool:
        """Whether the best size for `n_members` members has been found and its time is certain."""
        return self._has_found(n_members) and self._n_best_samples >= ENOUGH_SAMPLES

    def size(self, n_members: int) -> int:
        """The number of members to run at once out of `n_members`; it may be larger, which means all of them."""
        return self._best[1] if self._best is not None and self._has_found(n_members) else self._size

    def record(self, size: int, seconds: float) -> None:
        """Adds a measurement: the seconds per member of a piece of this size."""
        if self._best is not None and size == self._best[1]:
            self._best = (min(self._best[0], seconds), size)
            self._n_best_samples += 1
        elif not self._is_found and size == self._size:
            self._samples.append(seconds)
            if len(self._samples) == SAMPLES:
                self._judge(min(self._samples))

    def shrink(self, n_members: int) -> None:
        """Halves the size, because `n_members` were too many for the device's memory."""
        self._limit = self._size = max(n_members // 2, 1)
        self._best, self._is_found = ((self._best or (0.0, 0))[0], self._size), True

    def _judge(self, seconds: float) -> None:
        self._samples.clear()
        if self._best is None or seconds < GAIN * self._best[0]:
            self._best, self._n_best_samples, self._failures = (seconds, self._size), SAMPLES, 0
        else:
            self._failures += 1
        self._is_found = self._failures == PATIENCE or self._size == self._limit
        if not self._is_found:
            self._size = min(2 * self._size, self._limit)

    def _has_found(self, n_members: int) -> bool:
        # Half of this size already held all of them.
        return self._is_found or (self._best is not None and self._size >= 2 * n_members)
