"""A callback that keeps all events."""

from typing import final

from fedlearn.callback import Callback
from fedlearn.storage.logs.metrics import StepMetrics


@final
class Kept(Callback):
    """Keeps the metrics of all steps, and the notices."""

    def __init__(self) -> None:
        self.metrics: list[StepMetrics] = []
        self.notices: list[str] = []

    def on_step(self, metrics: StepMetrics) -> None:
        self.metrics.append(metrics)

    def on_notice(self, text: str) -> None:
        self.notices.append(text)

    def on_join(self, name: str) -> None:
        self.notices.append(f"{name} joined")

    def on_leave(self, name: str, reason: str) -> None:
        self.notices.append(f"{name} left: {reason}")
