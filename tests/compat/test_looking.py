"""Looks at weights beside the training."""

from collections.abc import Mapping

import numpy as np
import pytest

from fedlearn.es.layout import Float32Array
from fedlearn.storage.logs.metrics import StepMetrics

pytest.importorskip("torch")

from fedlearn.compat.looking import Looks, OnLook
from tests.run_folders import fit_task


def metrics(step: int) -> StepMetrics:
    return StepMetrics(
        step=step, loss=float(step), shown={}, members=1, work_per_s=1.0, work=1, volunteers=1, bytes_in=0, bytes_out=0,
        digest="", time=0.0, elapsed_s=0.0,
    )  # fmt: skip


def looks(weights: Float32Array, on_look: OnLook, every: int) -> Looks:
    return Looks(fit_task().task, weights.copy, every=every, on_look=on_look)


def test_every_so_many_steps_are_looked_at_as_they_were_when_the_step_was_over() -> None:
    seen: list[tuple[int, float, float]] = []

    def told(step: int, loss: float, figures: Mapping[str, float], weights: Mapping[str, Float32Array]) -> None:
        assert figures == fit_task().task.evaluate(
            np.concatenate([each.ravel() for each in weights.values()]), threads=1
        )
        seen.append((step, loss, float(next(iter(weights.values())).ravel()[0])))

    weights = np.zeros(fit_task().task.layout.size, dtype=np.float32)
    with looks(weights, told, every=2) as watched:
        for step in range(5):
            weights += 1
            watched.on_step(metrics(step))
    assert seen == [(2, 1.0, 2.0), (4, 3.0, 4.0)]


def test_what_is_raised_is_raised_when_the_run_has_ended() -> None:
    def told(*_: object) -> None:
        raise OSError("no space left")

    weights = np.zeros(fit_task().task.layout.size, dtype=np.float32)
    with pytest.raises(OSError, match="no space left"), looks(weights, told, every=1) as watched:
        watched.on_step(metrics(0))
