"""The plot of the benchmark of volunteers: seconds to the target by their number, and how the runs learn."""

from pathlib import Path

import matplotlib

from benchmarks.text.volunteers_results import Cell, Report, by_series

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes


def plot(report: Report, path: Path) -> None:
    """Writes a PNG: a row for each hidden size."""
    sizes = sorted({cell.case.hidden_size for cell in report.cells})
    figure, rows = pyplot.subplots(len(sizes), 2, figsize=(15, 6 * len(sizes)), squeeze=False, layout="constrained")
    for size, (times, curves) in zip(sizes, rows, strict=True):
        series = by_series([cell for cell in report.cells if cell.case.hidden_size == size])
        for number, cells in enumerate(series):
            _draw_times(times, cells, f"C{number}")
            _draw_curves(curves, cells, f"C{number}")
        times.set(xscale="log", yscale="log", xlabel="volunteers", ylabel="virtual seconds to the target")
        curves.set(xscale="log", xlabel="virtual seconds", ylabel="validation bits per character")
        for axis in (times, curves):
            axis.grid(alpha=0.2)
            if axis.has_data():
                axis.legend()
    lines = report.cells[0].case.lines
    figure.suptitle(
        f"{report.text}: volunteers of one core each, {lines.up_mbit:g} up and {lines.down_mbit:g} down Mbit/s, "
        f"{1e3 * lines.latency_s:g} ms; dotted: twice the volunteers, half the seconds"
    )
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _draw_times(axis: Axes, cells: list[Cell], colour: str) -> None:
    reached = [(cell.volunteers, cell.seconds) for cell in cells if cell.seconds is not None]
    if not reached:
        return
    numbers = [number for number, _ in reached]
    label = f"{cells[0].case.name}, to {cells[0].case.target:g} bits"
    axis.plot(numbers, [seconds for _, seconds in reached], "o-", color=colour, label=label)
    first, seconds = reached[0]
    axis.plot(numbers, [seconds * first / number for number in numbers], ":", color=colour, linewidth=0.8)


def _draw_curves(axis: Axes, cells: list[Cell], colour: str) -> None:
    for number, cell in enumerate(cells):
        axis.plot(
            [look.seconds for look in cell.looks],
            [look.validation_bits_per_character for look in cell.looks],
            color=colour,
            alpha=0.25 + 0.75 * (number + 1) / len(cells),
            label=f"{cell.case.name}, {cell.volunteers}",
        )
