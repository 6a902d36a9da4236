"""The figures that are written down of each step that is over."""

import time
from collections.abc import Callable

from msgspec.structs import asdict

from fedlearn.coordination.steps.report import StepReport
from fedlearn.storage.logs.metrics import StepMetrics, StepTraffic


def step_metrics(
    report: StepReport,
    traffic: StepTraffic,
    show: Callable[[float], tuple[str, float]],
    work_per_member: int,
    *,
    digest: bytes,
    elapsed_s: float = 0.0,
    validation: dict[str, float] | None = None,
) -> StepMetrics:
    """The step's line of metrics; `show` gives the name and the value of a loss as people read it."""
    work = report.members * work_per_member
    return StepMetrics(
        **asdict(report),
        **asdict(traffic),
        shown=dict([show(report.loss)]) if report.loss is not None else {},
        # A relay without volunteers takes the steps of others.
        work_per_s=work / max(report.duration_s, 1e-6) if report.volunteers else 0.0,
        work=work,
        digest=digest.hex(),
        time=time.time(),
        elapsed_s=elapsed_s,
        validation=validation or {},
    )
