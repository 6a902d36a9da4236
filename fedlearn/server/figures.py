"""What is written down of each step that is over."""

import time
from typing import final

from fedlearn.coordination.effects import StepReport
from fedlearn.storage.metrics import Kinds, Relayed, StepMetrics
from fedlearn.tasks.kind import Prepared


@final
class Figures:
    """Of a run's steps, one after the other."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._bytes_in = self._bytes_out = 0

    def of_step(
        self,
        report: StepReport,
        *,
        bytes_in: int,
        bytes_out: int,
        relayed: Relayed,
        kinds: Kinds,
        elapsed_s: float,
        validation: dict[str, float],
    ) -> StepMetrics:
        """The step's line of metrics; the counts of bytes are totals from the server's start to the step's end."""
        finite = report.loss == report.loss
        work = report.members * self._prepared.objective.work_per_member
        metrics = StepMetrics(
            step=report.step,
            loss=report.loss if finite else None,
            shown=dict([self._prepared.examiner.show(report.loss)]) if finite else {},
            members=report.members,
            work_per_s=work / max(report.duration_s, 1e-6),
            work=work,
            volunteers=report.volunteers,
            bytes_in=bytes_in - self._bytes_in,
            bytes_out=bytes_out - self._bytes_out,
            digest=report.digest.hex(),
            time=time.time(),
            elapsed_s=elapsed_s,
            validation=validation,
            relayed=relayed,
            kinds=kinds,
            variance_left=report.variance_left,
        )
        self._bytes_in, self._bytes_out = bytes_in, bytes_out
        return metrics
