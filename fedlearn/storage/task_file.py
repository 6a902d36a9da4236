"""Tasks in Python files that the person at this machine names; no other code is ever imported."""

import importlib.util
import inspect
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

from blake3 import blake3

import es_core
from fedlearn.storage.packages import add_remedy
from fedlearn.tasks.task import Task
from fedlearn.tasks.user.named_task import NamedTask

_HASH_BYTES = 16
_INSTALLED = {"site-packages", "dist-packages"}
"""Names of the folders with installed packages, wherever they lie."""


def is_task_file(text: str) -> bool:
    """Whether the text names a task in a file rather than a kind."""
    return ":" in text or text.endswith(".py")


def load_task(entry: str) -> NamedTask:
    """The task that `FILE.py:NAME` names; modules beside the file can be imported by it.

    Raises:
        ValueError: there is no such task. Errors of the file's own code come through as they are.
    """
    file, _, name = entry.rpartition(":")
    path = Path(file).resolve()
    if not file or not name or path.suffix != ".py":
        raise ValueError(f"task: expected FILE.py:NAME, e.g. digits.py:task, got {entry!r}")
    if not path.is_file():
        raise ValueError(f"task: expected a Python file, got {file!r}, which does not exist here")
    module = import_file(path)
    task = getattr(module, name, None)
    if not isinstance(task, Task):
        raise ValueError(f"task: expected a task called {name} in {file}, got {_other(module, name)}")
    return NamedTask(task, f"{path}:{name}", _source_hash(path))


def _other(module: ModuleType, name: str) -> str:
    """What a name of a module means in place of a task, and what to do."""
    tasks = [key for key, value in vars(module).items() if isinstance(value, Task)]
    there = f"tasks there: {', '.join(tasks) or 'none'}"
    if name not in vars(module):
        return f"nothing of that name; {there}"
    found = getattr(module, name)
    remedy = "make a task with fedlearn.supervised, function, environment or reward, and name that"
    if isinstance(found, type):
        return f"a class; {there}; {remedy}"
    if inspect.isroutine(found):
        return f"a function, which is no task and is not called; {there}; {remedy}"
    return f"one of type {type(found).__name__}; {there}; {remedy}"


def import_file(path: Path) -> ModuleType:
    """The module in a file; modules beside the file can be imported by it.

    Raises:
        ModuleNotFoundError: the file imports what is not installed; the message says what to install.
    """
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        add_remedy(error, path.name)
        raise
    except ImportError as error:
        if "relative import" not in str(error):
            raise
        raise ValueError(
            f"{path.name}: expected imports without a dot, such as `from parts import model` of parts.py beside it, "
            f"got a relative one: {error}; a task's file is no part of a package"
        ) from error
    return module


def _source_hash(path: Path) -> bytes:
    """Hash of the file and of the user's own modules beside and below it that it imported; line ends do not count."""
    digest = blake3()
    for file in sorted({path, *_imported_below(path.parent)}):
        digest.update(file.relative_to(path.parent).as_posix().encode() + b"\0")
        digest.update(file.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return digest.digest(_HASH_BYTES)


def _imported_below(folder: Path) -> set[Path]:
    """Files of modules in the folder, without those that a program imports only as it needs them.

    Those are fedlearn's own, Python's and installed ones, which may all lie below the user's folder.
    """
    places = [
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("platstdlib"),
        str(Path(__file__).parents[1]),
        *es_core.__path__,
    ]
    foreign = [Path(place).resolve() for place in places]
    modules = [module for name, module in list(sys.modules.items()) if name != "__main__"]
    names = [getattr(module, "__file__", None) for module in modules]
    # Some modules, such as PyTorch's, give a file that does not exist.
    files = {Path(name).resolve() for name in names if name and name.endswith(".py") and Path(name).is_absolute()}
    return {
        file
        for file in files
        if file.is_relative_to(folder)
        and _INSTALLED.isdisjoint(file.parts)
        and not any(file.is_relative_to(place) for place in foreign)
    }
