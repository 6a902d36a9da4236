"""`fedlearn rollback`: back to an earlier step, from which the run can go on."""

import argparse
import shlex

from fedlearn.commands.arguments import add_run, step_or_best
from fedlearn.commands.output import add_output, bars_of
from fedlearn.runs.best import number_of
from fedlearn.runs.replaying import replaying
from fedlearn.runs.rollback import roll_back
from fedlearn.runs.run import find, task_flag
from fedlearn.storage.runs import lock_run
from fedlearn.system.invocation import invocation
from fedlearn.terminal import printable


def add_rollback(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `fedlearn rollback`."""
    add_run(parser)
    parser.add_argument(
        "step", type=step_or_best, metavar="STEP", help="the step that the run is to go on with, or 'best' as for eval"
    )
    add_output(parser)


def rollback_command(options: argparse.Namespace) -> int:
    """`fedlearn rollback RUN STEP`: nothing is deleted; what is later lies in a folder of the run."""
    chosen = find(options.runs, options.run)
    with lock_run(chosen.folder):
        step = number_of(chosen, options.step)
        with replaying(bars_of(options), chosen, until=step) as progress:
            aside = roll_back(chosen, step, progress=progress)
    name = chosen.folder.path.name
    if aside.names:
        print(printable(f"set aside in {aside.folder}: {', '.join(aside.names)}"))
    flags = f"--resume {shlex.quote(str(chosen.folder.path))}{task_flag(chosen.folder, chosen.config)}"
    command = f"{invocation('serve')} {flags}"
    print(printable(f"run {name} stands at step {step}; go on with: {command}"))
    return 0
