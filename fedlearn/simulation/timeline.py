"""Virtual time: a clock that jumps from one event to the next, and the cores and lines that are busy in it."""

import heapq
from collections.abc import Callable
from typing import final

Act = Callable[[], None]


@final
class Timeline:
    """Events in the order of their time; those of one time happen in the order in which they were scheduled."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Act]] = []
        self._n_asked = 0

    def after(self, duration_s: float, act: Act) -> None:
        """Schedules an event so many seconds from now."""
        heapq.heappush(self._events, (self.now + duration_s, self._n_asked, act))
        self._n_asked += 1

    def advance(self) -> bool:
        """Runs the next event; gives False where there is none."""
        if not self._events:
            return False
        self.now, _, act = heapq.heappop(self._events)
        act()
        return True


@final
class Lane:
    """Runs one task after another, in the order of their requests, as a processor core does."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._free_at = 0.0

    def take(self, duration_s: float, then: Act | None = None) -> None:
        """Schedules a task of this duration once the core is free, and calls `then` at its end."""
        now = self._timeline.now
        self._free_at = max(self._free_at, now) + duration_s
        if then is not None:
            self._timeline.after(self._free_at - now, then)


@final
class SimulatedLink:
    """One direction of a connection: bytes leave at `mbit` megabits per second and arrive `latency_s` later, in
    order."""

    def __init__(self, timeline: Timeline, mbit: float, latency_s: float = 0.0) -> None:
        self._timeline, self._mbit, self._latency_s = timeline, mbit, latency_s
        self._lane = Lane(timeline)

    def carry(self, data: bytes, arrived: Callable[[bytes], None]) -> None:
        """Brings bytes to the other end."""
        leaving_s = 8e-6 * len(data) / self._mbit
        self._lane.take(leaving_s, lambda: self._timeline.after(self._latency_s, lambda: arrived(data)))
