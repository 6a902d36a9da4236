"""Volunteers by the dozen: processes forked from one that has imported all they need, each a few milliseconds of work.

Run by path, it takes a JSON object a line and forks `fedlearn join` with those arguments, or sends one of its children
a signal; so no signal ever reaches a process that is not its own.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from tests.patience import LIMIT_S

JOINING = ["--task", "fit.py:task", "--threads", "1", "--priority", "normal"]


@final
class Hatchery:
    """The process that forks, seen from a test."""

    def __init__(self, folder: Path, *, limit_s: float = LIMIT_S, imports: Sequence[str] = ()) -> None:
        """`imports`: modules that children need besides those of a function's task."""
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(limit_s), *imports],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        )

    def hatch(self, name: str, address: str, *arguments: str, lies: bool = False, **environ: str) -> int:
        """A volunteer with an identity of its own; what it says is appended to NAME.out. Gives its process."""
        own = {"XDG_CONFIG_HOME": str(self.folder / f"config of {name}")} | environ
        return self._ask(
            arguments=["--server", address, *JOINING, "--name", name, *arguments],
            environ=own,
            lies=lies,
            output=str(self.folder / f"{name}.out"),
        )

    def send(self, process: int, number: signal.Signals) -> bool:
        """Whether it was there to take the signal."""
        return bool(self._ask(process=process, signal=int(number)))

    def close(self) -> None:
        """Ends all of them."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, **request: object) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@contextmanager
def hatching(folder: Path, *, limit_s: float = LIMIT_S, imports: Sequence[str] = ()) -> Iterator[Hatchery]:
    """A hatchery, ended with all its volunteers."""
    hatchery = Hatchery(folder, limit_s=limit_s, imports=imports)
    try:
        yield hatchery
    finally:
        hatchery.close()


def lie() -> None:
    """Makes this process answer with losses that are the wrong way round."""
    from fedlearn.client.volunteer import VolunteerReplica
    from fedlearn.es.trials import TrialResults

    perform = VolunteerReplica.perform

    def perform_falsely(self: VolunteerReplica, compute: object) -> object:
        result = perform(self, compute)  # type: ignore[arg-type]
        if isinstance(result, TrialResults):
            return TrialResults(2 * result.losses.mean() - result.losses, result.estimate)
        return result

    VolunteerReplica.perform = perform_falsely  # type: ignore[method-assign, assignment]


def volunteer(request: dict[str, Any], limit_s: float) -> None:
    """What a child does; it never comes back."""
    from fedlearn.commands.command_line import main

    signal.alarm(int(limit_s))  # a child whose test was killed ends by itself
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(output, number)
    os.close(0)
    os.environ.update(request["environ"])
    if request["lies"]:
        lie()
    try:
        main(["join", *request["arguments"]])
    except SystemExit:
        pass
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def serve(limit_s: float, imports: Sequence[str]) -> None:
    """Forks and sends signals as it is told; kills what is left when nobody is there to tell."""
    import fedlearn.client.client
    import fedlearn.commands.command_line
    import fedlearn.commands.join.join
    import fedlearn.storage.task_file
    import fedlearn.tasks.function  # noqa: F401 (so that children need not)

    for module in imports:
        importlib.import_module(module)
    children: set[int] = set()
    for line in sys.stdin:
        request = json.loads(line)
        children = {child for child in children if os.waitpid(child, os.WNOHANG)[0] == 0}
        if "process" in request:
            answer = int(request["process"] in children)
            if answer:
                os.kill(request["process"], request["signal"])
        else:
            sys.stdout.flush()
            answer = os.fork()
            if answer == 0:
                volunteer(request, limit_s)
            children.add(answer)
        print(answer, flush=True)
    for child in children:
        os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    serve(float(sys.argv[1]), sys.argv[2:])
