"""Curves of runs; needs matplotlib (the extra `plot`)."""

from collections.abc import Mapping
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedlearn.library.columns import PLAIN, Columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMOOTHED_STEPS = 50
"""A curve has about so many independent points once it is smoothed."""

VALIDATION = "validation_"


def plot(runs: Mapping[str, Columns]) -> "Figure":
    """The figure that the runs show, over steps: each step pale, their mean dark, held-out data as dots.

    Raises:
        ImportError: matplotlib is missing.
        ValueError: no run has a step yet.
    """
    shown = {name: columns for name, columns in runs.items() if len(columns["step"])}
    if not shown:
        raise ValueError(f"plot: expected a run with at least one step, got none of {', '.join(runs) or 'no runs'}")
    figure = _empty()
    axes = figure.add_subplot()
    for number, (name, columns) in enumerate(shown.items()):
        quantity, color = quantity_of(columns), f"C{number}"
        steps, values = columns["step"], columns[quantity]
        axes.plot(steps, values, color=color, alpha=0.25, linewidth=0.8)
        axes.plot(steps, smoothed(values), color=color, label=f"run {name}")
        if (measured := columns.get(VALIDATION + quantity)) is not None:
            axes.plot(steps, measured, "o", color=color, markersize=4, label=f"run {name}, held out")
        axes.set_ylabel(quantity.replace("_per_", "/").replace("_", " "))
    axes.set_xlabel("step")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def _empty() -> "Figure":
    """A figure that pyplot knows nothing of, which a notebook shows all the same."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plot: expected matplotlib, which is not installed; pip install 'fedlearn[plot]'") from error

    class Curve(Figure):  # type: ignore[misc]  # of any type, see pyproject.toml
        def _repr_png_(self) -> bytes:
            buffer = BytesIO()
            self.savefig(buffer, format="png")
            return buffer.getvalue()

    return Curve(figsize=(8.0, 4.5), layout="constrained")


def quantity_of(columns: Columns) -> str:
    """What the run shows of its losses: bits per character, or the loss as it is."""
    others = [name for name in columns if name not in PLAIN and not name.startswith(VALIDATION)]
    return others[0] if others else "loss"


def smoothed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of the neighbours of each value; what is NaN counts for nothing."""
    width = max(len(values) // SMOOTHED_STEPS, 1)
    window, is_there = np.ones(width), np.isfinite(values)
    total = np.convolve(np.where(is_there, values, 0.0), window, mode="same")
    count = np.convolve(is_there, window, mode="same")
    mean: NDArray[np.float64] = np.divide(total, count, out=np.full(len(values), np.nan), where=count > 0)
    return mean
