"""Callbacks that the person at the server names: nothing that a run folder or a configuration names is imported."""

from importlib import import_module
from pathlib import Path

from fedlearn.callback import Callback
from fedlearn.storage.packages import add_remedy
from fedlearn.storage.task_file import import_file


def load_callback(entry: str) -> Callback:
    """The callback that `FILE.py:NAME` or `MODULE:NAME` names; a name that can be called, such as a class, is called.

    Raises:
        ValueError: there is no such callback. Errors of the code itself come through as they are.
    """
    place, _, name = entry.rpartition(":")
    if not place or not name:
        raise ValueError(f"--callback: expected FILE.py:NAME or MODULE:NAME, got {entry!r}")
    if place.endswith(".py"):
        path = Path(place).resolve()
        if not path.is_file():
            raise ValueError(f"--callback: expected a Python file, got {place!r}, which does not exist here")
        module = import_file(path)
    else:
        try:
            module = import_module(place)
        except ModuleNotFoundError as error:
            add_remedy(error, "--callback")
            raise
    named = getattr(module, name, None)
    made = named() if callable(named) else named
    if not isinstance(made, Callback):
        raise ValueError(f"--callback: expected a fedlearn.Callback called {name} in {place}, got {made!r}")
    return made
