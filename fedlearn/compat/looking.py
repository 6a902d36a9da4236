"""Looks at a run's weights after every so many steps, beside the training."""

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Self, final

from fedlearn.callback import Callback
from fedlearn.es.layout import Float32Array
from fedlearn.storage.logs.metrics import StepMetrics
from fedlearn.tasks.task import Task

OnLook = Callable[[int, float, Mapping[str, float], Mapping[str, Float32Array]], None]
"""A function that is given the steps done, the loss of the last one, metrics on held-out data, and weights by name."""


@final
class Looks(Callback):
    """Copies the weights when a step is over, and tells of them on one thread, in order."""

    def __init__(self, task: Task, copy: Callable[[], Float32Array], *, every: int, on_look: OnLook | None) -> None:
        self._task, self._copy, self._every, self._on_look = task, copy, every, on_look
        self._layout = task.layout
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._failure: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._thread.shutdown()
        if self._failure is not None and kind is None:
            raise self._failure

    def on_step(self, metrics: StepMetrics) -> None:
        step = metrics.step + 1
        if self._on_look is not None and self._every and step % self._every == 0 and self._failure is None:
            # The next step is not applied before this returns.
            self._thread.submit(self._look, self._on_look, step, metrics.loss, self._copy())

    def _look(self, on_look: OnLook, step: int, loss: float | None, weights: Float32Array) -> None:
        try:
            figures = self._task.evaluate(weights, threads=1)
            on_look(step, math.nan if loss is None else loss, figures, self._layout.split(weights))
        except Exception as error:
            self._failure = error  # which ends what awaits the run, once the run has ended
