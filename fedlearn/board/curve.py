"""A run's figures over its steps in bounded memory: neighbouring steps share a bucket, and more of them in a long
run."""

from typing import final

import numpy as np
from numpy.typing import NDArray

from fedlearn.coordination.steps.report import FIGURES

CAPACITY = 2000
"""The most buckets of a curve, an even number: as many points as a wide screen has."""

AXES = ("step", "seconds", "work")
"""The axes of a bucket: its last step, with the seconds of training and the work since the run's beginning."""

DRAWN = ("loss", "shown", "work_per_s", "volunteers", "bytes_in", "bytes_out", *FIGURES)

Rows = NDArray[np.float64]
"""Array [n, 1 + axes + 3 * figures]: steps in the bucket, where it ends, then mean, least and greatest of each figure.
"""

_AXES = slice(1, 1 + len(AXES))
_MEAN, _LEAST, _GREATEST = (
    slice(1 + len(AXES) + part * len(DRAWN), 1 + len(AXES) + (part + 1) * len(DRAWN)) for part in range(3)
)
_WIDTH = 1 + len(AXES) + 3 * len(DRAWN)


def rows_of(axes: NDArray[np.float64], figures: NDArray[np.float64]) -> Rows:
    """One row for each step, from `axes` [n, axes] and `figures` [n, figures], where NaN stands for none."""
    return np.hstack([np.ones((len(axes), 1)), axes, figures, figures, figures])


@final
class BucketedCurve:
    """Adds steps to buckets as they come.

    Attributes:
        epoch: number of times that rows were changed which were whole before.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self._width = 1
        self._whole: Rows = np.empty((0, _WIDTH))
        self._begun: Rows = np.empty((0, _WIDTH))
        """Rows of single steps that do not fill a bucket yet."""

    @property
    def n_whole(self) -> int:
        """Rows that no later step changes in this epoch."""
        return len(self._whole)

    @property
    def rows(self) -> Rows:
        """All rows; the last one is a bucket that may not be full yet."""
        return np.vstack([self._whole, _merged(self._begun, len(self._begun))]) if len(self._begun) else self._whole

    @property
    def last(self) -> dict[str, float]:
        """The axes of the last step; zeros before the first."""
        rows = self.rows
        return dict(zip(AXES, rows[-1, _AXES] if len(rows) else (-1.0, 0.0, 0.0), strict=True))

    def add(self, rows: Rows) -> None:
        """Adds steps at the end."""
        self._begun = np.vstack([self._begun, rows])
        while len(self._begun) >= self._width:
            n_buckets = min(len(self._begun) // self._width, CAPACITY - len(self._whole))
            n_rows = n_buckets * self._width
            self._whole = np.vstack([self._whole, _merged(self._begun[:n_rows], self._width)])
            self._begun = self._begun[n_rows:]
            if len(self._whole) == CAPACITY:
                self._whole = _merged(self._whole, 2)
                self._width *= 2
                self.epoch += 1

    def cut(self, step: int) -> None:
        """Removes this step, later steps, and the steps that share a bucket with them."""
        self._whole = self._whole[self._whole[:, 1] < step]
        self._begun = self._begun[self._begun[:, 1] < step]
        self.epoch += 1


def columns(rows: Rows) -> dict[str, dict[str, list[float]]]:
    """The rows by axis and figure: the values of each axis, and mean, least and greatest of each figure."""

    def listed(values: NDArray[np.float64]) -> list[float]:
        return [float(f"{value:.6g}") for value in values]

    found = {
        "axes": {name: [round(value, 2) for value in rows[:, 1 + place].tolist()] for place, name in enumerate(AXES)}
    }
    for part, chosen in (("mean", _MEAN), ("least", _LEAST), ("greatest", _GREATEST)):
        found[part] = {name: listed(rows[:, chosen][:, place]) for place, name in enumerate(DRAWN)}
    return found


def _merged(rows: Rows, width: int) -> Rows:
    """One row for every `width` rows, whose number is a multiple of that."""
    parts = rows.reshape(-1, width, _WIDTH)
    merged = parts[:, -1].copy()
    merged[:, 0] = parts[:, :, 0].sum(axis=1)
    weights = np.where(np.isnan(parts[:, :, _MEAN]), 0.0, parts[:, :, :1])
    with np.errstate(invalid="ignore"):
        merged[:, _MEAN] = (np.nan_to_num(parts[:, :, _MEAN]) * weights).sum(axis=1) / weights.sum(axis=1)
    merged[:, _LEAST] = np.fmin.reduce(parts[:, :, _LEAST], axis=1)
    merged[:, _GREATEST] = np.fmax.reduce(parts[:, :, _GREATEST], axis=1)
    return merged
