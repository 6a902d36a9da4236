"""Figures as people read them."""

from collections.abc import Mapping

from fedlearn.coordination.steps.report import FIGURES, SPREAD
from fedlearn.storage.logs.metrics import StepMetrics

_NEXT_UNIT = 999.5
"""Least number that three digits can only show as 1e+03."""


def format_step(metrics: StepMetrics, run_left_s: float | None, unit: str) -> str:
    """One line: step, loss, the figures that are for the terminal, volunteers, speed in units of work, and the training
    time left where it is limited."""
    loss = format_shown(metrics) or "no loss"
    figures = "".join(
        f"  {FIGURES[name].label} {format_share(value) if FIGURES[name].unit == 'share' else f'{value:.4g}'}"
        for name, value in metrics.figures.items()
        if FIGURES[name].in_terminal
    )
    left = f"  {format_duration(run_left_s)} left" if run_left_s is not None else ""
    speed = format_count(metrics.work_per_s)
    volunteers = counted(metrics.volunteers, "volunteer")
    return f"step {metrics.step:>5}  {loss}{figures}  {volunteers}  {speed:>5} trial-{unit}/s{left}"


def format_shown(metrics: StepMetrics) -> str:
    """The loss of a step as people read it; a return or reward, which is minus the loss, has its spread with it."""
    shown = format_figures(metrics.shown)
    is_return = metrics.loss is not None and [*metrics.shown.values()] == [-metrics.loss]
    spread = metrics.figures.get(SPREAD) if is_return else None
    return shown if spread is None else f"{shown} ± {spread:.4g}"


def format_figures(figures: Mapping[str, float]) -> str:
    """Figures by name, the rates with their unit behind them: 2.345 bits/character, accuracy 0.912."""
    return ", ".join(
        f"{value:.3f} {name.replace('_per_', '/').replace('_', ' ')}"
        if "_per_" in name
        else f"{name.replace('_', ' ')} {value:.4g}"
        for name, value in figures.items()
    )


def format_count(number: float) -> str:
    """A number with three digits and a unit prefix: 12.3k, 4.56M."""
    return _in_units(number, "", "k", "M", "G")


def format_duration(seconds: float) -> str:
    """A duration in its largest whole unit: 42 s, 5 min, 3 h, 2 d."""
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def format_share(share: float) -> str:
    """A share in percent, small ones with a digit more: 41 %, 0.3 %."""
    percent = 100.0 * share
    return f"{percent:.1f} %" if 0.0 < percent < 1.0 else f"{percent:.0f} %"


def counted(count: int, what: str) -> str:
    """A count with its noun, such as 1 volunteer or 3 volunteers."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def format_bytes(number: float) -> str:
    """Bytes with three digits: 512 B, 1.23 MB."""
    return _in_units(number, " B", " kB", " MB", " GB")


def _in_units(number: float, *units: str) -> str:
    """A number with three digits in the first of these units, each a thousand of the one before, that has room."""
    *smaller, largest = units
    for unit in smaller:
        if number < _NEXT_UNIT:
            return f"{number:.3g}{unit}"
        number /= 1e3
    return f"{number:.3g}{largest}"
