"""`fedlearn join` with a stopwatch around evaluation and gradient estimate: `timed_volunteer.py FILE [join's flags]`.

At its end it writes what each step took into FILE, as JSON: a list of `StepSeconds`.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import msgspec

import es_core
from fedlearn.commands.command_line import main
from fedlearn.es.replica import Replica

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class StepSeconds(msgspec.Struct):
    """Seconds within es_core in one step."""

    evaluation: float = 0.0
    estimate: float = 0.0


def timed(function: Callable[Arguments, Result], record: Callable[[float], None]) -> Callable[Arguments, Result]:
    """The function, whose seconds are recorded."""

    def call(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
        started = time.perf_counter()
        result = function(*arguments, **keywords)
        record(time.perf_counter() - started)
        return result

    return call


def join() -> None:
    """Joins, and leaves the file behind."""
    steps = [StepSeconds()]

    def evaluated(seconds: float) -> None:
        steps[-1].evaluation += seconds

    def estimated(seconds: float) -> None:
        steps[-1].estimate = seconds

    es_core.rnn_member_losses = timed(es_core.rnn_member_losses, evaluated)
    es_core.rnn_activation_gradient = timed(es_core.rnn_activation_gradient, evaluated)
    es_core.estimate_gradient = timed(es_core.estimate_gradient, estimated)
    setattr(Replica, "apply", timed(Replica.apply, lambda _: steps.append(StepSeconds())))  # noqa: B010 (a method)
    try:
        main(["join", *sys.argv[2:]])
    finally:
        Path(sys.argv[1]).write_bytes(msgspec.json.encode(steps[:-1]))


if __name__ == "__main__":
    join()
