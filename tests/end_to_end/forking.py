"""Processes of server.py, client.py, fedlearn and examples, forked from one that has imported what they need.

Python takes half a second to import what a server or a volunteer needs, and five where PyTorch is among it; a fork
takes some milliseconds. `Forked` is a `Popen` whose process comes from such a fork; what that process starts by `Popen`
is forked as well. Tests of what is imported, when, and from where, of how much memory a process takes, of its children,
and of what a terminal sees start real processes instead.

Run by path, with the number of a socket, this file is the process that forks.
"""

import asyncio.unix_events
import atexit
import faulthandler
import functools
import gc
import importlib
import io
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, final

import msgspec

ROOT = Path(__file__).parents[2]
ALWAYS = (
    *("fedlearn.start", "fedlearn.commands.command_line", "fedlearn.client.client", "fedlearn.tasks.function"),
    *("fedlearn.tasks.rnn.kind", "fedlearn.tasks.user.task_kind", "fedlearn.tasks.torch_graph.kind"),
)
FIRST_USE = "fedlearn.tasks.torch_graph.first_use"
IF_USED = {
    "torch": ("fedlearn.tasks.torch.supervised", "fedlearn.compat", FIRST_USE),
    "gymnasium": ("gymnasium", "fedlearn.tasks.environment"),
    "sklearn": ("sklearn.datasets",),
    "transformers": ("transformers.models.llama.modeling_llama",),
}
"""What is imported as soon as a process is started after a test has imported a package, or named it in `used`."""

READ_BEFORE = ("FEDLEARN_ISA", "PYTHONHASHSEED")
"""Variables that have an effect only when Python starts, or while it imports."""

used: set[str] = set()


class Request(msgspec.Struct):
    """What a process shall be."""

    program: list[str]
    """`-m`, a module, and its arguments; or a script and its."""

    folder: str
    environ: dict[str, str]
    imports: list[str]
    """Modules that are imported before the fork, here and in all later children."""

    group: int
    """The process group; 0: a session of its own."""


class Forks(NamedTuple):
    """The process that forks: its address, and the session of its children."""

    address: bytes
    session: int


@final
class Forked(subprocess.Popen[Any]):
    """A Python process whose command line names a script, or a module by `-m`; any other is started as ever.

    Its parent is the process that forks, which tells its exit status over `_line`.
    """

    _line: socket.socket | None = None

    def _execute_child(self, args: Sequence[str], *given: Any) -> None:  # noqa: ANN401 (Popen's own)
        _, preexec_fn, _, pass_fds, folder, environ, _, _, shell, *rest = given
        pipes, has_session = rest[:6], rest[-2]
        environ = dict(os.environ if environ is None else environ)
        program = None if preexec_fn or pass_fds or shell else program_of(args, environ)
        if program is None or os.getsid(0) != forks().session:
            super()._execute_child(args, *given)  # type: ignore[misc]
            return
        there = used | sys.modules.keys()
        request = Request(
            program,
            folder=os.path.abspath(os.fsdecode(folder or ".")),
            environ=environ,
            imports=[module for package, modules in IF_USED.items() if package in there for module in modules],
            group=0 if has_session else os.getpgid(0),
        )
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.connect(forks().address)
        stdin, _, _, stdout, _, stderr = pipes
        files = [number if file < 0 else file for number, file in enumerate((stdin, stdout, stderr))]
        socket.send_fds(line, [msgspec.json.encode(request)], files)
        self.pid, self._line, self._child_created = int(line.recv(32)), line, True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._line is None:
            return super()._try_wait(wait_flags)  # type: ignore[misc, no-any-return]
        self._line.setblocking(not wait_flags)
        try:
            status = self._line.recv(32)
        except BlockingIOError:
            return 0, 0
        self._line.close()
        return self.pid, int(status or signal.SIGKILL)

    def _internal_poll(self, _deadstate: int | None = None, **_: object) -> int | None:
        if self._line is None:
            return super()._internal_poll(_deadstate)  # type: ignore[misc, no-any-return]
        if self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                found, status = self._try_wait(os.WNOHANG)
                if found:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def program_of(command: Sequence[str], environ: dict[str, str]) -> list[str] | None:
    """What this Python would run, with the environment put right for its flags; None where a fork could not do it."""
    is_other = any(environ.get(name) != os.environ.get(name) for name in READ_BEFORE)
    words = [os.fsdecode(word) for word in command]
    if words.pop(0) != sys.executable or is_other or not hasattr(os, "pidfd_open"):
        return None
    while words[:1] in (["-P"], ["-u"]):
        if words.pop(0) == "-u":
            environ["PYTHONUNBUFFERED"] = "1"
    return words if words and (words[0] == "-m" or not words[0].startswith("-")) else None


@functools.cache
def forks() -> Forks:
    """Starts the process that forks; it ends with this one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind("")  # the system finds a name
        listener.listen(64)
        process = subprocess.Popen(
            [sys.executable, __file__, str(listener.fileno())],
            cwd=ROOT,
            env=os.environ | {"OMP_WAIT_POLICY": "passive"},  # as the command line asks for before PyTorch is imported
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        atexit.register(process.communicate)
        return Forks(listener.getsockname(), os.getsid(0))


@final
class Forking:
    """What the process does that forks. It has one thread, and no child keeps its files open."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._lines: dict[int, tuple[int, socket.socket]] = {}
        """The child, and the line to who asked for it, by the descriptor of its process."""
        self._events = selectors.DefaultSelector()
        self._events.register(listener, selectors.EVENT_READ)
        self._events.register(0, selectors.EVENT_READ)

    def serve(self) -> Request:
        """Forks whenever asked to; comes back in a child, with what it was asked for. Ends with its standard input."""
        while True:
            for key, _ in self._events.select():
                if key.fd == 0:
                    for child, _ in self._lines.values():
                        os.kill(child, signal.SIGKILL)
                    os._exit(0)
                if key.fd in self._lines:
                    self._tell(key.fd)
                elif (request := self._fork()) is not None:
                    return request

    def _fork(self) -> Request | None:
        line, _ = self._listener.accept()
        data, files, _, _ = socket.recv_fds(line, 2**20, 3)
        if not data:  # whoever called was killed before it could ask
            line.close()
            return None
        request = msgspec.json.decode(data, type=Request)
        import_all(request.imports)
        if (child := os.fork()) == 0:
            line.close()
            self._events.close()
            self._listener.close()
            for descriptor, (_, other) in self._lines.items():
                other.close()
                os.close(descriptor)
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            return request
        for file in files:
            os.close(file)
        descriptor = os.pidfd_open(child)
        self._lines[descriptor] = child, line
        self._events.register(descriptor, selectors.EVENT_READ)
        _say(line, child)
        return None

    def _tell(self, descriptor: int) -> None:
        child, line = self._lines.pop(descriptor)
        self._events.unregister(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(child, 0)
        with line:
            _say(line, status)


def _say(line: socket.socket, number: int) -> None:
    with suppress(OSError):  # whoever asked may have been killed
        line.send(str(number).encode())


def import_all(modules: Iterable[str]) -> None:
    """Imports those that are installed, and what PyTorch imports only when it exports for the first time."""
    for module in modules:
        if module not in sys.modules:
            with suppress(ImportError):
                imported = importlib.import_module(module)
                if module == FIRST_USE:
                    export_first(imported)
    gc.freeze()  # a child's collector need not look at them


def export_first(first_use: Any) -> None:  # noqa: ANN401 (a module)
    """Exports without the thread that tqdm would start, which a fork does not have."""
    with suppress(ImportError):
        importlib.import_module("tqdm").tqdm.monitor_interval = 0
    first_use.export_once()
    first_use.run_once()


def run(request: Request, origin: Forks) -> None:
    """Makes this process what Python would have made of the command line, and runs the program."""
    if request.group:
        os.setpgid(0, request.group)
    else:
        os.setsid()
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environ)
    open_streams(is_buffered=not request.environ.get("PYTHONUNBUFFERED"))
    if request.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    if "OMP_NUM_THREADS" in request.environ and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(int(request.environ["OMP_NUM_THREADS"]))
    fork_children(origin)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which whoever began the tests may have had ignored
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    run_program(request.program, [path for path in request.environ.get("PYTHONPATH", "").split(os.pathsep) if path])


def fork_children(origin: Forks) -> None:
    """Has what this process starts by `Popen` forked as well, but for those that asyncio waits for itself."""
    global forks
    asyncio.unix_events.subprocess = SimpleNamespace(**vars(subprocess))  # type: ignore[attr-defined]
    usual = subprocess.Popen
    for module in list(sys.modules.values()):  # of PyTorch's, one keeps it by name
        if vars(module).get("Popen") is usual:
            module.Popen = Forked  # type: ignore[attr-defined]
    forks = lambda: origin  # type: ignore[assignment] # noqa: E731


def run_program(program: Sequence[str], paths: Sequence[str]) -> None:
    sys.path[:1] = paths
    if program[0] != "-m":
        sys.argv = list(program)
        sys.path.insert(0, str(Path(program[0]).resolve().parent))
        runpy.run_path(program[0], run_name="__main__")
        return
    sys.argv = list(program[1:])
    if program[1] == "fedlearn":
        from fedlearn.commands.command_line import main  # `fedlearn.__main__` would import the package anew

        main()
    sys.path.insert(0, os.getcwd())
    runpy.run_module(program[1], run_name="__main__", alter_sys=True)


def open_streams(*, is_buffered: bool) -> None:
    """Makes Python's standard streams anew, for the files of their numbers are others now."""
    source, *sinks = (io.FileIO(number, mode, closefd=False) for number, mode in enumerate("rww"))
    sys.stdin = io.TextIOWrapper(io.BufferedReader(source), "utf-8")
    out, err = (io.BufferedWriter(file) if is_buffered else file for file in sinks)
    is_seen = sinks[0].isatty()
    sys.stdout = io.TextIOWrapper(out, "utf-8", line_buffering=is_seen, write_through=not is_buffered)
    sys.stderr = io.TextIOWrapper(err, "utf-8", "backslashreplace", line_buffering=True, write_through=not is_buffered)


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # a child hears what is sent before it is ready to
    import_all(ALWAYS)
    from fedlearn.commands.command_line import GROUPS

    import_all(f"fedlearn.commands.{module}" for verbs in GROUPS.values() for _, module, _ in verbs)
    listener = socket.socket(fileno=int(sys.argv[1]))
    origin = Forks(listener.getsockname(), os.getsid(0))
    run(Forking(listener).serve(), origin)


if __name__ == "__main__":
    main()
