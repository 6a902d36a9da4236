"""The command line: `fedlearn VERB`; VERBS has them all."""

import argparse
import difflib
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from fedlearn.commands.arguments import add_identity, add_run
from fedlearn.commands.board import add_board, board_command
from fedlearn.commands.check import add_check, check_command
from fedlearn.commands.evaluate import add_eval, eval_command
from fedlearn.commands.export import add_export, export_command
from fedlearn.commands.hub import add_hub, hub_command
from fedlearn.commands.identity import identity_command
from fedlearn.commands.join import add_join, join_command
from fedlearn.commands.launch import add_launch, launch_command
from fedlearn.commands.orders import (
    add_send_away,
    add_set,
    checkpoint_command,
    finish_command,
    go_on_command,
    pause_command,
    send_away_command,
    set_command,
    stop_command,
)
from fedlearn.commands.parser import Parser
from fedlearn.commands.plan import add_plan, plan_command
from fedlearn.commands.plot import add_plot, plot_command
from fedlearn.commands.rank import add_rank, rank_command
from fedlearn.commands.relay import add_relay, relay_command
from fedlearn.commands.replay import add_replay, replay_command
from fedlearn.commands.rollback import add_rollback, rollback_command
from fedlearn.commands.runs import add_runs, runs_command
from fedlearn.commands.sample import add_sample, sample_command
from fedlearn.commands.serve import add_serve, serve_command
from fedlearn.commands.traffic import add_traffic, traffic_command
from fedlearn.commands.version import ShowVersion
from fedlearn.config import ConfigError
from fedlearn.storage.durable import StorageError
from fedlearn.system.processes import wait_asleep
from fedlearn.terminal import printable
from fedlearn.terminal.wrapping import columns_of, wrapped

Command = Callable[[argparse.Namespace], int]
AddArguments = Callable[[Parser], None]

VERBS: tuple[tuple[str, Command, AddArguments, str], ...] = (
    ("serve", serve_command, add_serve, "start a run, or resume one, and the server for its volunteers"),
    ("join", join_command, add_join, "lend this machine to a server"),
    ("relay", relay_command, add_relay, "connect many volunteers to a server as one"),
    ("launch", launch_command, add_launch, "start many volunteers, here or on a cluster"),
    ("rank", rank_command, add_rank, "serve or join, as one process of those that torchrun or srun starts"),
    ("identity", identity_command, add_identity, "show the identity that servers know this machine by"),
    ("plan", plan_command, add_plan, "show which machines would hold which part of a model"),
    ("sample", sample_command, add_sample, "let a run's newest weights write text"),
    ("eval", eval_command, add_eval, "measure a run's newest weights on held-out data"),
    ("board", board_command, add_board, "show the runs on a page for browsers"),
    ("hub", hub_command, add_hub, "take jobs over HTTP, and start a server for each"),
    ("runs", runs_command, add_runs, "list the runs, with steps, loss, age and configuration"),
    ("traffic", traffic_command, add_traffic, "show what a run sends, and what a member costs at a crew's cuts"),
    ("export", export_command, add_export, "write a run's weights or figures for other programs"),
    ("plot", plot_command, add_plot, "draw the curves of runs in one picture"),
    ("replay", replay_command, add_replay, "rebuild weights from genesis and journal, and compare digests"),
    ("check", check_command, add_check, "check that a run's files are complete and belong together"),
    ("rollback", rollback_command, add_rollback, "take a run back to an earlier step"),
    ("pause", pause_command, add_run, "pause a running server; its volunteers wait"),
    ("go-on", go_on_command, add_run, "let a paused server go on"),
    ("checkpoint", checkpoint_command, add_run, "let a running server write a checkpoint now"),
    ("send-away", send_away_command, add_send_away, "let a running server send a volunteer away"),
    ("set", set_command, add_set, "change a setting of a running server"),
    ("finish", finish_command, add_run, "end a run after its open step, as if it had been its last"),
    ("stop", stop_command, add_run, "stop a running server, as Ctrl-C does"),
)


def main(arguments: Sequence[str] | None = None, *, program: str = "fedlearn") -> NoReturn:
    """Runs one command and exits with its code: 0 done, 1 failed, 2 wrong usage."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # the text of a sample may not exist in this terminal's encoding
    wait_asleep()
    parser = _parser(program)
    given = sys.argv[1:] if arguments is None else arguments
    options, unknown = parser.parse_known_args(given)
    options.given = given
    if unknown:
        options.parser.error(_unknown_arguments(unknown, options.parser))
    try:
        code = options.command(options)
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        code = 1
    except (ConfigError, StorageError, ValueError, ImportError, OSError) as error:
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
    for name, command, add_arguments, description in VERBS:
        # server.py and client.py are one verb each: their usage line does not repeat it.
        prog = None if program == "fedlearn" else program
        verb = verbs.add_parser(name, help=description, description=description, prog=prog)
        verb.set_defaults(command=command, parser=verb)
        add_arguments(verb)
    return parser


def _unknown_arguments(unknown: Sequence[str], parser: Parser) -> str:
    flag = unknown[0].partition("=")[0]
    nearest = difflib.get_close_matches(flag, parser._option_string_actions, n=1)
    return f"expected a known flag, got {flag}" + (f"; did you mean {nearest[0]}?" if nearest else "")
