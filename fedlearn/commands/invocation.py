"""How this program was called, so that a command that it prints works where it is printed."""

import os
import shlex
import shutil
import sys
from pathlib import Path

_SCRIPTS = {"serve": "server.py", "join": "client.py"}


def invocation(verb: str) -> str:
    """The words that call a verb here: `fedlearn VERB`, or as this process was begun where that is not on the path."""
    script = Path(sys.argv[0])
    if script.name == _SCRIPTS.get(verb):
        return f"{_shown(sys.executable)} {_shown(script)}"
    if script.name in ("fedlearn", "fedlearn.exe"):
        return f"{_shown(script)} {verb}"
    return f"{_shown(sys.executable)} -m fedlearn {verb}"


def _shown(path: str | Path) -> str:
    """A program as a person here would type it: its name where the shell finds it by that, else the shortest path."""
    path = Path(os.path.abspath(path))
    found = shutil.which(path.name)
    if found is not None and Path(found).absolute() == path:
        return path.name
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
