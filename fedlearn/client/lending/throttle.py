"""Computes how long trials must rest so that a process takes no more than its share of the machine's processor time."""

from typing import final


@final
class CpuThrottle:
    """Limits a process to a share above 0 of `n_processors`; unused time is not saved up."""

    def __init__(self, share: float, n_processors: int) -> None:
        self._processors = share * n_processors
        self._owed_s = 0.0
        self._last: tuple[float, float] | None = None

    def rest_s(self, cpu_s: float, now: float) -> float:
        """Seconds to rest from now on; `cpu_s` is the processor time that this process has taken since it began."""
        if self._last is not None:
            last_cpu_s, last = self._last
            self._owed_s = max(self._owed_s + cpu_s - last_cpu_s - self._processors * (now - last), 0.0)
        self._last = (cpu_s, now)
        return self._owed_s / self._processors
