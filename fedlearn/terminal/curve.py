"""A figure over time in bounded memory: its shape as a line of blocks, and its trend."""

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import final

CAPACITY = 512
"""The most points of the curve, more than a terminal has columns; when they are full, each two become one."""

BIN_S = 1.0
"""Seconds whose values make one point of the trend, so that fast steps do not shorten the time that it covers."""

TREND_POINTS = 120
LEAST_POINTS = 8
"""The fewest points from which a trend is computed, since figures are noisy."""

CERTAIN = 2.0
"""The number of standard errors below which a slope counts as none."""

LEAST_SPAN = 30.0
"""The least ratio of a curve's first value to its least for which it is drawn by powers of ten."""

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.-=+*%#"


@final
class RunningCurve:
    """Takes a figure's values as they come."""

    def __init__(self) -> None:
        self._points: list[float] = []
        self._values_per_point = 1
        self._sum, self._count = 0.0, 0
        self._recent: deque[tuple[float, float, int]] = deque(maxlen=TREND_POINTS)
        """The (time of the first, sum, count) of the values of each BIN_S."""

    def add(self, value: float, now: float) -> None:
        """Adds a value; `now` is in seconds."""
        if not math.isfinite(value):
            return
        self._sum, self._count = self._sum + value, self._count + 1
        if self._count == self._values_per_point:
            self._points.append(self._sum / self._count)
            self._sum, self._count = 0.0, 0
        if len(self._points) == CAPACITY:
            self._points = [(a + b) / 2 for a, b in zip(self._points[::2], self._points[1::2], strict=True)]
            self._values_per_point *= 2
        if self._recent and now < self._recent[-1][0] + BIN_S:
            began, total, count = self._recent[-1]
            self._recent[-1] = (began, total + value, count + 1)
        else:
            self._recent.append((now, value, 1))

    def shape(self, n_columns: int) -> list[float]:
        """The curve in at most so many points, each the mean of its part."""
        points, n_columns = self._points, max(n_columns, 1)
        if len(points) <= n_columns:
            return list(points)
        cuts = [round(number * len(points) / n_columns) for number in range(n_columns + 1)]
        return [sum(points[a:b]) / (b - a) for a, b in pairwise(cuts)]

    def per_minute(self) -> float | None:
        """How fast the figure rises, by least squares over the last points; 0 where noise hides it, None too early."""
        times = [began for began, _, _ in self._recent]
        values = [total / count for _, total, count in self._recent]
        n = len(times)
        if n < LEAST_POINTS:
            return None
        middle, mean = sum(times) / n, sum(values) / n
        spread = sum((time - middle) ** 2 for time in times)
        slope = sum((time - middle) * (value - mean) for time, value in zip(times, values, strict=True)) / spread
        left = sum((value - mean - slope * (time - middle)) ** 2 for time, value in zip(times, values, strict=True))
        error = math.sqrt(left / (n - 2) / spread)
        return 60.0 * slope if abs(slope) > CERTAIN * error else 0.0


def sparkline(points: Sequence[float], *, blocks: str = BLOCKS) -> str:
    """The points as a line of blocks, from the lowest to the highest of them; by powers of ten if it falls so."""
    if not points:
        return ""
    if falls_by_powers(points):
        points = [math.log(point) for point in points]
    low, high = min(points), max(points)
    scale = (len(blocks) - 1) / (high - low) if high > low else 0.0
    return "".join(blocks[round((point - low) * scale)] for point in points)


def falls_by_powers(values: Sequence[float]) -> bool:
    """Whether a curve falls so far that only powers of ten show it all; one that reaches zero never does."""
    return len(values) > 0 and 0.0 < LEAST_SPAN * min(values) <= values[0]


def trend_in_words(per_minute: float | None) -> str:
    """The trend of a figure in words, such as "falling by 0.021 a minute"; empty if it is not known."""
    if per_minute is None:
        return ""
    if per_minute == 0.0:
        return "steady"
    change, unit = (abs(per_minute), "a minute") if abs(per_minute) >= 1e-3 else (60 * abs(per_minute), "an hour")
    return f"{'falling' if per_minute < 0 else 'rising'} by {change:.2g} {unit}"
