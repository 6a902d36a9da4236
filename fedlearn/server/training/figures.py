"""What is written down of each step that is over."""

import time

import msgspec

from fedlearn.coordination.effects import StepReport
from fedlearn.storage.logs.metrics import StepMetrics, StepTraffic
from fedlearn.tasks.kind import Prepared


def step_metrics(
    prepared: Prepared, report: StepReport, traffic: StepTraffic, *, elapsed_s: float, validation: dict[str, float]
) -> StepMetrics:
    """The step's line of metrics."""
    finite = report.loss == report.loss
    work = report.members * prepared.objective.work_per_member
    return StepMetrics(
        step=report.step,
        loss=report.loss if finite else None,
        shown=dict([prepared.examiner.show(report.loss)]) if finite else {},
        members=report.members,
        work_per_s=work / max(report.duration_s, 1e-6),
        work=work,
        volunteers=report.volunteers,
        digest=report.digest.hex(),
        time=time.time(),
        elapsed_s=elapsed_s,
        validation=validation,
        variance_left=report.variance_left,
        **msgspec.structs.asdict(traffic),
    )
