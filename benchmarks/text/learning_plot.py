"""The plot of the learning benchmark: bits per character over trial-tokens and over seconds."""

from pathlib import Path

import matplotlib
import numpy as np

from benchmarks.text.results import Figure, Report, Result, over_seeds

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes


def plot(report: Report, path: Path) -> None:
    """Writes a PNG: of each recipe the budget that ended best all along, and where each of its budgets ended."""
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
