"""Who is told what happens in a run: the terminal, the files for viewers, and whoever else wants to know.

A callback is called on the thread that has the run, between two things that this does: it must return soon, and leave
what takes long to a thread of its own.
"""

import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, final

import msgspec

from fedlearn.coordination.status import RunStatus
from fedlearn.storage.metrics import StepMetrics


class Begun(msgspec.Struct, frozen=True):
    """What never changes while a run goes on."""

    run: str
    """Its name: the number of its folder."""
    folder: Path | None
    """None at a relay: the run's folder is the server's."""
    unit: str
    """Of work: tokens, examples, episodes."""
    step: int
    """Where it begins or goes on."""
    n_parameters: int
    settings: Mapping[str, Any]
    """By their keys, as in the run's `config.json`."""


class Callback:
    """Is told what happens in a run; every method does nothing until it is overridden.

    Whatever one raises is said once, ends no run, and the callback is told nothing more.
    """

    def on_begin(self, begun: Begun) -> None:
        """The run begins, or goes on."""

    def on_step(self, metrics: StepMetrics) -> None:
        """A step is over, and its line of `metrics.jsonl` is written."""

    def on_examined(self, step: int, figures: Mapping[str, float], sample: str) -> None:
        """The weights after this many steps were measured on held-out data; `sample` is empty if they don't write."""

    def on_checkpoint(self, step: int, path: Path) -> None:
        """The weights after this many steps are saved."""

    def on_join(self, name: str) -> None:
        """A volunteer holds the weights for the first time, and takes part from now on."""

    def on_leave(self, name: str, reason: str) -> None:
        """Somebody who had joined is gone; at the run's end this is said of nobody."""

    def on_notice(self, text: str) -> None:
        """A sentence for the person who has the run."""

    def on_status(self, status: RunStatus) -> None:
        """How things stand, about once a second, and once more when the run has ended."""

    def on_end(self, reason: str) -> None:
        """The run is over, be it by an error; nothing follows."""


@final
class Callbacks(Callback):
    """Several as one; whoever raises is dropped."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self._callbacks = tuple(callbacks)

    def on_begin(self, begun: Begun) -> None:
        self._tell(lambda callback: callback.on_begin(begun))

    def on_step(self, metrics: StepMetrics) -> None:
        self._tell(lambda callback: callback.on_step(metrics))

    def on_examined(self, step: int, figures: Mapping[str, float], sample: str) -> None:
        self._tell(lambda callback: callback.on_examined(step, figures, sample))

    def on_checkpoint(self, step: int, path: Path) -> None:
        self._tell(lambda callback: callback.on_checkpoint(step, path))

    def on_join(self, name: str) -> None:
        self._tell(lambda callback: callback.on_join(name))

    def on_leave(self, name: str, reason: str) -> None:
        self._tell(lambda callback: callback.on_leave(name, reason))

    def on_notice(self, text: str) -> None:
        self._tell(lambda callback: callback.on_notice(text))

    def on_status(self, status: RunStatus) -> None:
        self._tell(lambda callback: callback.on_status(status))

    def on_end(self, reason: str) -> None:
        self._tell(lambda callback: callback.on_end(reason))

    def _tell(self, tell: Callable[[Callback], None]) -> None:
        for callback in self._callbacks:
            if callback not in self._callbacks:
                continue  # dropped meanwhile, by what another one's failure led to
            try:
                tell(callback)
            except Exception as error:
                self._drop(callback, error)

    def _drop(self, callback: Callback, error: Exception) -> None:
        self._callbacks = tuple(other for other in self._callbacks if other is not callback)
        place = traceback.extract_tb(error.__traceback__)[-1]
        self.on_notice(
            f"{type(callback).__name__}: {type(error).__name__}: {error} ({place.filename}:{place.lineno}); "
            "this callback is told nothing more, and the run goes on"
        )
