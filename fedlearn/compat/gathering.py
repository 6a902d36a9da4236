"""A run that begins once all of its machines are there."""

from typing import final

from fedlearn.callback import Begun, Callback
from fedlearn.storage.orders import GoOn, Pause, give
from fedlearn.storage.runs import RunFolder

WHO = "waiting for all nodes"
"""The name under which a run is paused."""


@final
class Gathering(Callback):
    """Pauses a run when it begins, until so many volunteers have joined."""

    def __init__(self, n_volunteers: int) -> None:
        self._n_missing = n_volunteers
        self._run: RunFolder | None = None

    def on_begin(self, begun: Begun) -> None:
        if begun.folder is not None and self._n_missing > 1:
            self._run = RunFolder(begun.folder)
            give(self._run.orders, Pause(by=WHO))

    def on_join(self, name: str) -> None:  # noqa: ARG002 (whoever it is)
        self._n_missing -= 1
        if self._n_missing == 0 and self._run is not None:
            give(self._run.orders, GoOn(by=WHO))
