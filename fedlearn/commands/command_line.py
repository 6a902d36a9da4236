"""The command line: `fedlearn VERB`; VERBS has them all."""

import difflib
import io
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import NoReturn

from fedlearn.commands.parser import Parser
from fedlearn.commands.version import ShowVersion
from fedlearn.storage.durable import StorageError
from fedlearn.system.processes import wait_asleep
from fedlearn.terminal.guards import printable
from fedlearn.terminal.wrapping import columns_of, wrapped

VERBS: tuple[tuple[str, str, str], ...] = (
    ("serve", "serve", "start a run, or resume one, and the server for its volunteers"),
    ("join", "join", "lend this machine to a server"),
    ("relay", "relay", "connect many volunteers to a server as one"),
    ("launch", "launch", "start many volunteers, here or on a cluster"),
    ("rank", "rank", "serve or join, as one process of those that torchrun or srun starts"),
    ("identity", "identity", "show the identity that servers know this machine by"),
    ("plan", "plan", "show which machines would hold which part of a model"),
    ("sample", "sample", "let a run's newest weights write text"),
    ("eval", "evaluate", "measure a run's newest weights on held-out data"),
    ("board", "board", "show the runs on a page for browsers"),
    ("hub", "hub", "take jobs over HTTP, and start a server for each"),
    ("runs", "runs", "list the runs, with steps, loss, age and configuration"),
    ("traffic", "traffic", "show what a run sends, and what a member costs at a crew's cuts"),
    ("export", "export", "write a run's weights or figures for other programs"),
    ("plot", "plot", "draw the curves of runs in one picture"),
    ("replay", "replay", "rebuild weights from genesis and journal, and compare digests"),
    ("check", "check", "check that a run's files are complete and belong together"),
    ("rollback", "rollback", "take a run back to an earlier step"),
    ("pause", "orders", "pause a running server; its volunteers wait"),
    ("go-on", "orders", "let a paused server go on"),
    ("checkpoint", "orders", "let a running server write a checkpoint now"),
    ("send-away", "orders", "let a running server send a volunteer away"),
    ("set", "orders", "change a setting of a running server"),
    ("finish", "orders", "end a run after its open step, as if it had been its last"),
    ("stop", "orders", "stop a running server, as Ctrl-C does"),
)
"""Each verb, the module here that has its `<verb>_command` and `add_<verb>`, and what it does.

The module is imported for whom the verb is: all together take longer than most verbs do.
"""


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
    options.given = given
    if unknown:
        options.parser.error(_unknown_arguments(unknown, options.parser))
    try:
        code = options.command(options)
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        code = 1
    except (StorageError, ValueError, ImportError, OSError) as error:
        print(wrapped(printable(f"{program}: {error}"), columns_of(sys.stderr)), file=sys.stderr)
        code = 1
    _flush_output()
    sys.exit(code)


def _flush_output() -> None:
    """Lets go of what nobody reads any more: at its exit Python would complain of it."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser(program: str) -> Parser:
    description = "Train neural networks by evolution strategies on volunteers' machines."
    parser = Parser(prog=program, description=description)
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="show this version and the protocol's, and exit")
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, module, description in VERBS:
        # server.py and client.py are one verb each: their usage line does not repeat it.
        prog = None if program == "fedlearn" else program
        verb = verbs.add_parser(name, help=description, description=description, prog=prog)
        verb.complete_with(partial(_complete, name.replace("-", "_"), module))
    return parser


def _complete(name: str, module: str, parser: Parser) -> None:
    verb = import_module(f"fedlearn.commands.{module}")
    getattr(verb, f"add_{name}")(parser)
    parser.set_defaults(command=getattr(verb, f"{name}_command"), parser=parser)


def _unknown_arguments(unknown: Sequence[str], parser: Parser) -> str:
    flag = unknown[0].partition("=")[0]
    nearest = difflib.get_close_matches(flag, parser._option_string_actions, n=1)
    return f"expected a known flag, got {flag}" + (f"; did you mean {nearest[0]}?" if nearest else "")
