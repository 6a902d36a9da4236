"""The runs' figures for Prometheus, in its text format.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

from collections.abc import Callable, Iterable

from fedlearn.coordination.status import RunStatus
from fedlearn.coordination.steps.report import FIGURES

_GAUGES: tuple[tuple[str, str, Callable[[RunStatus], float | None]], ...] = (
    ("step", "Steps that are taken.", lambda status: status.step),
    ("volunteers", "Volunteers that are let in.", lambda status: len(status.volunteers)),
    ("members_per_second", "Members of the last step a second.", lambda status: status.members_per_s),
    ("work_per_second", "Work of the last step a second, in the task's unit.", lambda status: status.work_per_s),
    ("received_bytes_per_second", "Bytes from volunteers.", lambda status: status.bytes_in_per_s),
    ("sent_bytes_per_second", "Bytes to volunteers.", lambda status: status.bytes_out_per_s),
    ("loss", "Mean loss of the last step's members, without the outermost groups.", lambda status: status.loss),
    *((name, figure.text, lambda status, name=name: status.figures.get(name)) for name, figure in FIGURES.items()),
)


def exposition(statuses: Iterable[RunStatus], *, n_viewers: int) -> str:
    """The text for the runs that servers have now."""
    running = list(statuses)
    lines = [*_head("viewers", "Streams that the board feeds."), f"fedlearn_viewers {n_viewers}"]
    for name, text, value_of in _GAUGES:
        lines += _head(name, text)
        for status in running:
            if (value := value_of(status)) is not None:
                lines.append(f'fedlearn_{name}{{run="{_escaped(status.run)}"}} {value}')
    lines += _head("figure", "The last step's loss as people read it, and figures on held-out data.")
    for status in running:
        for source, figures in (("training", status.shown), ("validation", status.validation)):
            for name, figure in figures.items():
                if figure is not None:
                    labels = f'run="{_escaped(status.run)}",name="{_escaped(name)}",source="{source}"'
                    lines.append(f"fedlearn_figure{{{labels}}} {figure}")
    return "\n".join(lines) + "\n"


def _head(name: str, text: str) -> list[str]:
    return [f"# HELP fedlearn_{name} {text}", f"# TYPE fedlearn_{name} gauge"]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
