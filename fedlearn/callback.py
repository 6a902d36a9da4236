"""Callbacks, which are told what happens in a run: the terminal, the files for viewers, and yours.

A callback is called on the thread that trains, which waits for it: it must return soon, and do long work on a thread of
its own.
"""

import traceback
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, final

import msgspec

from fedlearn.coordination.status import RunStatus
from fedlearn.storage.logs.metrics import StepMetrics
from fedlearn.system.own_frames import own_frames


class Begun(msgspec.Struct, frozen=True):
    """The facts that are fixed when a run begins or resumes."""

    run: str
    """The run's name: the number of its folder."""
    folder: Path | None
    """The run's folder; None on a relay, since the server has it."""
    unit: str
    """The unit of work: tokens, examples or episodes."""
    step: int
    """The step at which the run begins or goes on."""
    n_parameters: int
    settings: Mapping[str, Any]
    """The settings by their keys, as in the run's `config.json`."""


class Callback:
    """The base class of callbacks, which are told what happens in a run; every method does nothing by default.

    An exception in a callback is reported and does not end the run, but the callback is not called again.
    """

    def on_begin(self, begun: Begun) -> None:
        """Called when the run begins, or resumes."""

    def on_step(self, metrics: StepMetrics) -> None:
        """Called after each step, once its line of `metrics.jsonl` is written."""

    def on_look(self, step: int) -> None:
        """Called before the weights after `step` steps are measured beside the training; `on_examined` has the
        result."""

    def on_examined(self, step: int, figures: Mapping[str, float], sample: str) -> None:
        """Called with figures of the weights after `step` steps on held-out data; `sample` is empty if the model can't
        write."""

    def on_checkpoint(self, step: int, path: Path) -> None:
        """Called when the weights after `step` steps are saved in this file."""

    def on_join(self, name: str) -> None:
        """Called when a volunteer holds the weights for the first time, and takes part from now on."""

    def on_local_join(self, name: str) -> None:
        """Called in the place of `on_join` with a volunteer that the server started; calls it unless overridden."""
        self.on_join(name)

    def on_leave(self, name: str, reason: str) -> None:
        """Called when a volunteer that had joined is gone, but not when the run ends."""

    def on_notice(self, text: str) -> None:
        """Called with a sentence for the person who started the run."""

    def on_problem(self, text: str) -> None:
        """Called with a problem that does not end the run; calls `on_notice` unless it is overridden."""
        self.on_notice(text)

    def on_status(self, status: RunStatus) -> None:
        """Called with the state of the run, about once a second, and once more when it has ended."""

    def on_end(self, reason: str) -> None:
        """Called when the run is over, maybe by an error; nothing follows."""


EVENTS = tuple(name for name in vars(Callback) if name.startswith("on_"))
"""The names of the methods that callbacks have."""


@final
class Callbacks(Callback):
    """Several callbacks as one; a callback that raises an exception is dropped."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self._callbacks = tuple(callbacks)
        self.failures = list[str]()
        """A sentence about each callback that was dropped."""
        for event in EVENTS:
            setattr(self, event, partial(self._tell, event))

    def _tell(self, event: str, *facts: object) -> None:
        for callback in self._callbacks:
            if callback not in self._callbacks:
                continue  # dropped meanwhile, by what another one's failure led to
            try:
                getattr(callback, event)(*facts)
            except Exception as error:
                self._drop(callback, event, error)

    def _drop(self, callback: Callback, event: str, error: Exception) -> None:
        self._callbacks = tuple(other for other in self._callbacks if other is not callback)
        place = (own_frames(error) or traceback.extract_tb(error.__traceback__))[-1]
        text = (
            f"{type(callback).__name__}.{event}: {type(error).__name__}: {error} ({place.filename}:{place.lineno}); "
            "this callback is told nothing more, and the run goes on"
        )
        self.failures.append(text)
        self.on_problem(text)
