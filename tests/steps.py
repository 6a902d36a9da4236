"""Lines of metrics for tests that don't train."""

from typing import Any

import msgspec

from fedlearn.storage.logs.metrics import StepMetrics

_USUAL = StepMetrics(
    step=0,
    loss=2.5,
    shown={"bits_per_character": 3.6},
    members=64,
    work_per_s=1000.0,
    volunteers=1,
    bytes_in=0,
    bytes_out=0,
    digest="",
    time=0.0,
)


def step_metrics(step: int, **changes: Any) -> StepMetrics:  # noqa: ANN401 (values of any field)
    """Of a step, with what a test wants to be otherwise."""
    return msgspec.structs.replace(_USUAL, step=step, **changes)
