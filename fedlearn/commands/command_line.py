"""The command line: `fedlearn VERB`; GROUPS has them all."""

import errno
import io
import os
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import NoReturn

from fedlearn.commands.parser import Parser
from fedlearn.config.nearest import did_you_mean
from fedlearn.storage.durable import StorageError
from fedlearn.storage.packages import add_remedy
from fedlearn.system.own_frames import own_lines
from fedlearn.system.processes import wait_asleep
from fedlearn.system.signals import interrupted_code
from fedlearn.terminal.guards import printable
from fedlearn.terminal.wrapping import columns_of, wrapped

GROUPS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "train": (
        ("serve", "train.serve", "start a run, or resume one, and the server for its volunteers"),
        ("hub", "train.hub", "take jobs over HTTP, and start a server for each"),
        ("plan", "train.plan", "show which machines would hold which part of a model"),
    ),
    "join": (
        ("join", "join.join", "lend this machine to a server"),
        ("relay", "join.relay", "connect many volunteers to a server as one"),
        ("launch", "join.launch", "start many volunteers, here or on a cluster"),
        ("rank", "join.rank", "serve or join, as one process of those that torchrun or srun starts"),
        ("identity", "join.identity", "show the identity that servers know this machine by"),
    ),
    "look at runs": (
        ("board", "look.board", "show the runs on a page for browsers"),
        ("runs", "look.runs", "list the runs, with steps, loss, age and configuration"),
        ("sample", "look.sample", "let a run's newest weights write text"),
        ("eval", "look.evaluate", "measure a run's newest weights on held-out data"),
        ("plot", "look.plot", "draw the curves of runs in one picture"),
        ("export", "look.export", "write a run's weights or figures for other programs"),
        ("traffic", "look.traffic", "show what a run sends, and what a member costs at a crew's cuts"),
        ("check", "look.check", "check that a run's files are complete and belong together"),
        ("replay", "look.replay", "rebuild weights from genesis and journal, and compare digests"),
    ),
    "manage runs": (
        ("pause", "manage.orders", "pause a running server; its volunteers wait"),
        ("go-on", "manage.orders", "let a paused server go on"),
        ("set", "manage.orders", "change a setting of a running server"),
        ("checkpoint", "manage.orders", "let a running server write a checkpoint now"),
        ("send-away", "manage.orders", "let a running server send a volunteer away"),
        ("finish", "manage.orders", "end a run, after some steps in which its learning rate falls"),
        ("stop", "manage.orders", "stop a running server, as Ctrl-C does"),
        ("rollback", "manage.rollback", "take a run back to an earlier step"),
    ),
}
"""Each verb below its heading: the module here that has its `<verb>_command` and `add_<verb>`, and what it does.

The module is imported for whom the verb is: all together take longer than most verbs do.
"""


EXPECTED = (StorageError, ValueError, ImportError, OSError, SyntaxError)
"""Errors whose words are enough for whoever gave the command; of others, the person's own lines are shown too."""

UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a disk that takes no more."""


def main(arguments: Sequence[str] | None = None, *, program: str = "fedlearn") -> NoReturn:
    """Runs one command and exits with its code: 0 done, 1 failed, 2 wrong usage.

    Raises:
        ImportError: fedlearn, or what it needs, is not installed as a whole.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # the text of a sample may not exist in this terminal's encoding
    wait_asleep()
    given = sys.argv[1:] if arguments is None else arguments
    try:
        options, unknown = _parser(program).parse_known_args(given)
    except KeyboardInterrupt:  # while a verb is imported
        sys.exit(130)
    except SystemExit as shown:  # help, a version or a mistake
        _exit(program, shown.code)
    options.given = given
    if unknown:
        options.parser.error(_unknown_arguments(unknown, options.parser))
    told = ""
    try:
        code = options.command(options)
    except KeyboardInterrupt as interrupt:
        code = interrupted_code(interrupt)
    except BrokenPipeError:
        code = 1
    except Exception as error:
        lines, is_expected = own_lines(error), isinstance(error, EXPECTED)
        if not lines and not is_expected:
            raise
        if isinstance(error, ModuleNotFoundError):
            add_remedy(error, "import")
        what = _words(error) if is_expected and not lines else f"{type(error).__name__}: {error}"
        told = "; ".join([f"{program}: {what}", *getattr(error, "__notes__", [])])
        for line in [*lines, told]:
            print(wrapped(printable(line), columns_of(sys.stderr)), file=sys.stderr)
        code = 1
    _exit(program, code, told=told)


def _exit(program: str, code: str | int | None, *, told: str = "") -> NoReturn:
    """Ends this process with a code, or with 1 where its output is lost, which is said unless it was told."""
    if (lost := _flush_output()) and lost not in told:
        print(f"{program}: {lost}", file=sys.stderr)
        code = code or 1
    sys.exit(code)


def _flush_output() -> str:
    """Lets go of what nobody reads any more, of which Python would complain at its exit; gives an error of a full disk
    that it was to go to."""
    if sys.stdout is None:
        return ""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return "" if isinstance(error, BrokenPipeError) else _words(error)
    return ""


def _words(error: Exception) -> str:
    """The words of an error, with what could not be written where the system names no file: that is the output."""
    if isinstance(error, OSError) and error.filename is None and error.errno in UNWRITTEN:
        return f"output: could not be written: {error.strerror}; make room, or let it go elsewhere"
    return f"{error}"


def _version() -> str:
    # Imported when it is asked for: that takes longer than all other arguments together.
    from importlib import metadata

    from fedlearn.wire.messages import PROTOCOL_VERSION

    return f"fedlearn {metadata.version('fedlearn')}, protocol {PROTOCOL_VERSION}"


def _parser(program: str) -> Parser:
    description = "Train neural networks on volunteers' machines, from losses alone or from gradients."
    parser = Parser(prog=program, description=description)
    parser.show("--version", _version, "show this version and the protocol's, and exit")
    parsers = parser.add_verbs(
        {heading: [(name, does) for name, _, does in verbs] for heading, verbs in GROUPS.items()}, noun="command"
    )
    for verbs in GROUPS.values():
        for name, module, _ in verbs:
            verb = parsers[name]
            # server.py and client.py are one verb each: their usage line does not repeat it.
            verb.prog = verb.prog if program == "fedlearn" else program
            verb.complete_with(partial(_complete, name.replace("-", "_"), module))
    return parser


def _complete(name: str, module: str, parser: Parser) -> None:
    verb = import_module(f"fedlearn.commands.{module}")
    getattr(verb, f"add_{name}")(parser)
    parser.set_defaults(command=getattr(verb, f"{name}_command"), parser=parser)


def _unknown_arguments(unknown: Sequence[str], parser: Parser) -> str:
    flags = parser._option_string_actions
    if not unknown[0].startswith("-"):
        words = shlex.join(unknown) if "--prompt" not in flags else shlex.quote(" ".join(unknown))
        return f"expected flags, got {words}" + (f"; did you mean --prompt {words}?" if "--prompt" in flags else "")
    flag = unknown[0].partition("=")[0]
    return f"expected a known flag, got {flag}; {did_you_mean(flag, flags)}".removesuffix("; ")
