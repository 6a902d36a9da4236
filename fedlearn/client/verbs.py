"""Verbs of a device's owner: the executables of a folder, which the device's hub may call by their names.

A verb is given its arguments as JSON on standard input, and no others. Nothing that comes from the network becomes a
word of a command line or of a shell, or a path: a name is looked up among those that the folder has.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import msgspec

from fedlearn.system.files import who_else_may_write
from fedlearn.system.processes import communicate, end_family

NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
MAX_VERBS = 64
LIMIT_S = 60.0
"""Seconds that a verb may take unless the owner says otherwise."""

MAX_OUTPUT_BYTES = 32 * 1024
"""The most bytes of a verb's output that its hub is told: the last ones."""

KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")
"""The variables that a verb is given: tokens are in others."""


class VerbError(ValueError):
    """Raised for a call that is refused."""


class VerbResult(msgspec.Struct, frozen=True):
    """What a verb came to."""

    code: int
    """Its exit code; minus the number of the signal that ended it."""
    output: str
    """What it printed, errors among it; of much the end."""


@final
class Verbs:
    """The verbs in a folder; files may come and go while the device is there."""

    def __init__(self, folder: Path, *, limit_s: float = LIMIT_S) -> None:
        """
        Raises:
            ValueError: there is no such folder, or others may write to it.
        """
        if not folder.is_dir():
            raise ValueError(f"--verbs: expected a folder of executables, got {str(folder)!r}; make it first")
        if why := who_else_may_write(folder.stat()):
            raise ValueError(
                f"--verbs: expected a folder that only its owner can change, got one that {why}; chmod go-w"
            )
        if not limit_s > 0:
            raise ValueError(f"--verb-limit: expected seconds above 0, got {limit_s:g}")
        self._folder, self._limit_s = folder.resolve(), limit_s
        self._running: subprocess.Popen[bytes] | None = None

    def names(self) -> tuple[str, ...]:
        """The verbs that may be called, in alphabetical order."""
        if who_else_may_write(self._folder.stat()):
            return ()
        found = sorted(path.name for path in self._folder.iterdir())
        return tuple(name for name in found if NAME.fullmatch(name) and not self._fault(name))[:MAX_VERBS]

    def call(self, name: str, arguments: Mapping[str, Any]) -> VerbResult:
        """Runs a verb, and waits for it.

        Raises:
            VerbError: there is none of that name, or it took too long.
            OSError: it could not be started.
        """
        if not NAME.fullmatch(name):
            raise VerbError(f"verb: expected a name of small letters, digits, - and _, got {name[:64]!r}")
        if fault := self._fault(name):
            raise VerbError(f"verb {name}: {fault}")
        process = subprocess.Popen(
            [str(self._folder / name)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self._folder,
            env={key: os.environ[key] for key in KEPT_VARIABLES if key in os.environ},
            start_new_session=True,  # so that all that it starts can be ended with it
        )
        self._running = process
        try:
            output, _ = communicate(process, msgspec.json.encode(arguments), timeout_s=self._limit_s)
        except subprocess.TimeoutExpired as error:
            raise VerbError(
                f"verb {name}: expected its end within {self._limit_s:g} s, it went on and was killed; its owner may "
                "allow more with --verb-limit"
            ) from error
        finally:
            self._running = None
        return VerbResult(process.returncode, output[-MAX_OUTPUT_BYTES:].decode(errors="replace"))

    def stop(self) -> None:
        """Kills the verb that runs, with all that it started, since the device leaves."""
        if (process := self._running) is not None:
            end_family(process)
            process.wait()

    def _fault(self, name: str) -> str:
        """Why the file of this name is no verb; empty where it is one."""
        if why := who_else_may_write(self._folder.stat()):
            return f"expected a folder that only its owner can change, got one that {why}; chmod go-w"
        path = self._folder / name
        try:
            found = path.lstat()
        except OSError:
            return f"expected one of {', '.join(self.names()) or 'none at all'}; its owner puts an executable there"
        if path.is_symlink() or not path.is_file():
            return "expected a file, got a link or something else; put the executable itself there"
        if why := who_else_may_write(found):
            return f"expected a file that only its owner can change, got one that {why}; chmod go-w"
        return "" if os.access(path, os.X_OK) else "expected an executable, got another file; chmod u+x"
