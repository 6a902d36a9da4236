"""`fedlearn rank`: one process of a gang that torchrun or srun starts."""

import argparse
import os
from pathlib import Path

from es_core import usable_processors
from fedlearn.commands.arguments import DEFAULT_RUNS
from fedlearn.commands.parser import Parser
from fedlearn.commands.train.serve import add_serve
from fedlearn.launch.gang import GangRank, server_arguments, volunteer_arguments
from fedlearn.net.address import DEFAULT_PORT
from fedlearn.storage.runs import list_runs


def add_rank(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `fedlearn rank`."""
    parser.add_argument("task", metavar="TASK", help="FILE.py:NAME, or a kind such as rnn")
    parser.add_argument("flags", nargs=argparse.REMAINDER, metavar="FLAGS", help="of fedlearn serve, for rank 0")


def rank_command(options: argparse.Namespace) -> int:
    """`fedlearn rank TASK`: rank 0 serves, all others join it; gives the exit code."""
    from fedlearn.commands.command_line import main  # which knows this verb, too

    place = GangRank.of(os.environ)
    parser = Parser(prog="fedlearn rank TASK")
    add_serve(parser)
    given = parser.parse_args(options.flags)
    port = getattr(given, "port", DEFAULT_PORT)
    if place.rank == 0:
        runs = Path(getattr(given, "runs", os.environ.get("FEDLEARN_RUNS", DEFAULT_RUNS)))
        has_run = runs.is_dir() and bool(list_runs(runs))
        arguments = server_arguments(place, options.task, port, options.flags, has_run=has_run)
    else:
        threads = getattr(given, "threads", max(usable_processors() // place.n_local, 1))
        arguments = volunteer_arguments(place, options.task, port, threads=threads)
    main(arguments)
