"""The words that call fedlearn on this machine, so that a command that it prints works where it is printed."""

import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path


def invocation(verb: str, *, is_elsewhere: bool = False) -> str:
    """The words that call a verb: `fedlearn VERB` where the shell finds it, else with the program's path; with
    `python -m` where there is no program. Of another machine, where the words may be for, no folders are known."""
    if is_elsewhere:
        return f"fedlearn {verb}"
    folder = Path(sysconfig.get_path("scripts"))
    program = shutil.which("fedlearn", path=str(folder))
    if program is None:
        return f"{_shown(Path(sys.executable))} -m fedlearn {verb}"
    return f"{_shown(Path(program))} {verb}"


def _shown(program: Path) -> str:
    """A program as a person here would type it: its name where the shell finds it by that, else the shortest path."""
    found = shutil.which(program.name)
    if found is not None and os.path.abspath(found) == os.path.abspath(program):
        return program.stem if program.suffix.lower() == ".exe" else program.name
    here = Path.cwd()
    return shlex.quote(str(program.relative_to(here) if program.is_relative_to(here) else program))
