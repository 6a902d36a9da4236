"""The loss curves of runs in one picture."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.storage.durable import write_durably
from fedlearn.storage.logs.lines import read_lines
from fedlearn.storage.logs.metrics import StepMetrics, each_once
from fedlearn.storage.runs import RunFolder
from fedlearn.terminal.curve import falls_by_powers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Axis = Literal["steps", "seconds", "work"]
AXES: tuple[Axis, ...] = ("steps", "seconds", "work")

ENDINGS = (".png", ".svg", ".pdf")

MOST_POINTS = 2000
"""The most points of a curve, more than a screen has columns; longer ones show means of neighbours."""

SMOOTHING = 0.02
"""Reach of the smoothed curve to either side, as a share of the curve."""

Floats = NDArray[np.float64]


class Curve(msgspec.Struct, frozen=True, eq=False):
    """A run's figures over an axis."""

    name: str
    x: Floats
    y: Floats
    held_out: tuple[Floats, Floats]
    """Positions at which unperturbed weights were measured on held-out data, and the figures there."""


def plot(runs: Iterable[RunFolder], to: Path, *, axis: Axis = "steps") -> None:
    """Writes a picture of the runs' losses over steps, seconds of training, or work in the task's unit.

    Raises:
        ValueError: matplotlib is missing, or there is nothing to draw.
        StorageError: the disk refuses.
    """
    if to.suffix not in ENDINGS:
        raise ValueError(f"{to}: expected a name that ends in {', '.join(ENDINGS)}")
    content = io.BytesIO()
    figure(runs, axis=axis).savefig(content, format=to.suffix[1:], dpi=150)
    write_durably(to, content.getvalue())


def figure(runs: Iterable[RunFolder], *, axis: Axis = "steps") -> "Figure":
    """The same picture as a figure of matplotlib; losses that fall by powers of ten are drawn so.

    Raises:
        ValueError: matplotlib is missing, or there is nothing to draw.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError(
            "plot: expected the package matplotlib, which is missing; pip install 'fedlearn[plot]'"
        ) from error
    lines = {folder.path.name: list(read_lines(folder.metrics, StepMetrics)) for folder in runs}
    key = _key_of(lines)
    curves = [curve_of(name, found, key, axis=axis) for name, found in lines.items()]
    drawn = Figure(figsize=(8.0, 5.0), layout="constrained")
    axes = drawn.add_subplot()
    are_positive = all((values > 0.0).all() for curve in curves for values in (curve.y, curve.held_out[1]))
    by_powers = are_positive and any(falls_by_powers(curve.y.tolist()) for curve in curves)
    if by_powers:
        axes.set_yscale("log")
    for number, curve in enumerate(curves):
        color = f"C{number % 10}"
        x, y = thinned(curve.x, curve.y)
        axes.plot(x, y, color=color, alpha=0.25, linewidth=0.8)
        smoothed = np.exp(smooth(np.log(y))) if by_powers else smooth(y)
        axes.plot(x, smoothed, color=color, linewidth=1.6, label=f"run {curve.name}")
        if curve.held_out[0].size:
            axes.plot(*curve.held_out, ".", color=color, markersize=5, label=f"run {curve.name}, held out")
    axes.set_xlabel({"steps": "step", "seconds": "seconds of training", "work": "work of all trials"}[axis])
    axes.set_ylabel(key.replace("_", " "))
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    return drawn


def curve_of(name: str, lines: Sequence[StepMetrics], key: str, *, axis: Axis) -> Curve:
    """A run's figures of the name `key`; a step that was repeated counts once, one without a finite loss is left
    out."""
    lines = each_once(lines)
    places = {
        "steps": np.array([line.step for line in lines], dtype=np.float64),
        "seconds": np.array([line.elapsed_s for line in lines], dtype=np.float64),
        "work": np.cumsum([float(line.work) for line in lines]),
    }[axis]
    shown = np.array([line.shown.get(key, np.nan) for line in lines], dtype=np.float64)
    measured = np.array([line.validation.get(key, np.nan) for line in lines], dtype=np.float64)
    is_shown, is_measured = np.isfinite(shown), np.isfinite(measured)
    return Curve(name, places[is_shown], shown[is_shown], (places[is_measured], measured[is_measured]))


def thinned(*columns: Floats) -> list[Floats]:
    """Columns of at most MOST_POINTS values each: means of neighbours."""
    n_points = min(columns[0].size, MOST_POINTS)
    if n_points == columns[0].size:
        return list(columns)
    edges = np.linspace(0, columns[0].size, n_points + 1).astype(np.int64)
    return [np.add.reduceat(column, edges[:-1]) / np.diff(edges) for column in columns]


def smooth(values: Floats) -> Floats:
    """The height at each place of a line through its neighbours on both sides, by least squares, where neighbours count
    by exp(-distance / reach).

    So a curve that falls has no lag, which a mean of what came before has, and no bias at its ends.

    Source: local linear regression, W. S. Cleveland, https://doi.org/10.1080/01621459.1979.10481038
    """
    reach = max(SMOOTHING * values.size, 1.0)
    smoothed = np.empty_like(values)
    for place in range(values.size):
        first = max(place - int(5 * reach), 0)
        near = values[first : place + int(5 * reach) + 1]
        away = np.arange(near.size, dtype=np.float64) - (place - first)
        weights = np.exp(-np.abs(away) / reach)
        total, tilt, spread = weights.sum(), weights @ away, weights @ away**2
        by_place = weights * (spread - tilt * away) / max(total * spread - tilt**2, 1e-12) if spread else weights
        smoothed[place] = by_place @ near
    return smoothed


def _key_of(lines: dict[str, list[StepMetrics]]) -> str:
    """The common name of these runs' loss.

    Raises:
        ValueError: a run has no step yet, or the names differ.
    """
    keys = {name: next((key for line in found for key in line.shown), "") for name, found in lines.items()}
    if empty := [name for name, key in keys.items() if not key]:
        raise ValueError(f"run {empty[0]}: expected at least one step, got none; let it train first")
    if len(set(keys.values())) != 1:
        told = ", ".join(f"{key} of run {name}" for name, key in keys.items()) or "no run"
        raise ValueError(f"runs: expected runs with one kind of loss, got {told}; plot them separately")
    return next(iter(keys.values()))
