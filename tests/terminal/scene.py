"""A run as a terminal hears of it, and a clock that a test turns."""

from typing import final

from fedlearn.callback import Begun
from fedlearn.coordination.status import Earnings, RunStatus, StepStatus, VolunteerStatus
from fedlearn.storage.logs.metrics import StepMetrics
from tests.steps import step_metrics

BEGUN = Begun("12", folder=None, unit="episodes", step=0, n_parameters=1, settings={})


@final
class Clock:
    """Stands still until it is turned."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def metrics_of(step: int) -> StepMetrics:
    return step_metrics(step, loss=2.0, shown={"bits_per_character": 2.9}, work_per_s=1e5, volunteers=2)


def status_of(*names: str, steps: int = 0, run_left_s: float | None = None, step_left_s: float = 1.5) -> RunStatus:
    return RunStatus(
        run="12",
        state="running",
        step=8,
        steps=steps,
        run_left_s=run_left_s,
        members_per_s=1.0,
        open_step=StepStatus(step_left_s, 8, 64),
        volunteers=tuple(_volunteer(name, 1 / len(names)) for name in names),
    )


def _volunteer(name: str, share: float) -> VolunteerStatus:
    return VolunteerStatus(
        name=name,
        identity="0123",
        threads=1,
        is_local=False,
        phase="ready",
        members_per_s=1.0,
        share=share,
        members=0,
        exchange_s=None,
        trust="proven",
        caught=0,
        digest="equal",
        credit=Earnings(0, 0, 0, 0, 0),
    )
