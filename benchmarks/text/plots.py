"""The plots of the learning benchmark and of the benchmark of volunteers."""

from pathlib import Path

import matplotlib
import numpy as np

from benchmarks.text.results import Figure, Report, Result, over_seeds
from benchmarks.text.volunteers_results import Cell, by_series
from benchmarks.text.volunteers_results import Report as VolunteersReport

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes


def plot_learning(report: Report, path: Path) -> None:
    """Writes a PNG with bits per character over trial-tokens and over seconds.

    Each recipe has the curve of the budget that ended best, and a dot where each of its budgets ended.
    """
    figure, axes = pyplot.subplots(1, 2, figsize=(15, 6), sharey=True, layout="constrained")
    names = sorted({result.name for result in report.results})
    for axis, quantity, label in zip(
        axes, ("trial_tokens", "seconds"), ("trial-tokens (backprop: tokens)", "seconds"), strict=True
    ):
        for number, name in enumerate(names):
            results = [result for result in report.results if result.name == name]
            _draw(axis, results, name, f"C{number}", quantity)
        for name, (validation, _) in report.text.baselines_bits_per_character.items():
            axis.axhline(validation, color="0.6", linewidth=0.8, linestyle=":")
            axis.annotate(name, (0.005, validation), xycoords=("axes fraction", "data"), color="0.4", fontsize=8)
        axis.set(xscale="log", xlabel=label)
        axis.grid(alpha=0.2)
    axes[0].set_ylabel("validation bits per character")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
    figure.suptitle(f"{report.text.name}: mean of the seeds, shaded from least to greatest; dots: ends of budgets")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _draw(axis: Axes, results: list[Result], name: str, colour: str, quantity: str) -> None:
    best = min(results, key=lambda result: _end(result).mean)
    # Seeds are looked at after the same shares of the budget; one that ended early repeats its last look.
    n_looks = min(len(run.looks) for run in best.runs)
    looks = [[run.looks[n] for run in best.runs] for n in range(n_looks)]
    looks = [seeds for seeds in looks if all(look.steps > 0 for look in seeds)]
    places = [np.mean([getattr(look, quantity) for look in seeds]) for seeds in looks]
    bits = [over_seeds(look.validation_bits_per_character for look in seeds) for seeds in looks]
    axis.plot(places, [figure.mean for figure in bits], color=colour, label=name)
    axis.fill_between(
        places, [figure.low for figure in bits], [figure.high for figure in bits], color=colour, alpha=0.2, linewidth=0
    )
    for result in results:
        ends = _end(result)
        place = np.mean([getattr(run.looks[-1], quantity) for run in result.runs])
        axis.plot([place, place], [ends.low, ends.high], color=colour, linewidth=1)
        axis.plot([place], [ends.mean], "o", color=colour, markersize=4)


def _end(result: Result) -> Figure:
    """Validation bits per character at the end, over seeds."""
    return over_seeds(run.validation_bits_per_character for run in result.runs)


def plot_volunteers(report: VolunteersReport, path: Path) -> None:
    """Writes a PNG with seconds to the target by number of volunteers, and how the runs learn; a row a hidden size."""
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
