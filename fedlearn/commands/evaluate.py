"""`fedlearn eval`: how good a run's newest weights are."""

import argparse
import sys

from fedlearn.commands.arguments import add_run
from fedlearn.commands.progress import replay_progress
from fedlearn.data.sources import open_source
from fedlearn.es.replica import Replica
from fedlearn.server import history
from fedlearn.server.run import Run, find
from fedlearn.tasks.kind import ReadsText
from fedlearn.terminal import format_figures, printable


def add_eval(parser: argparse.ArgumentParser) -> None:
    """What is measured on."""
    add_run(parser)
    parser.add_argument(
        "--data",
        action="append",
        metavar="TEXT",
        help="text to measure on, as a run's --data; may be repeated (default: what the run holds out)",
    )
    parser.add_argument("--encoding", default="utf-8", metavar="NAME", help="of --data (default: utf-8)")


def eval_command(options: argparse.Namespace) -> int:
    """`fedlearn eval RUN`: prints the figures of unperturbed weights on held-out data."""
    chosen = find(options.runs, options.run, with_task=True)
    examiner, weights = chosen.prepared.examiner, newest(chosen)
    if options.data is None:
        figures, source = examiner.validate(weights.weights, threads=0), "what the run holds out"
    elif isinstance(examiner, ReadsText):
        texts = open_source(options.data, options.encoding)
        figures, note = examiner.validate_on(weights.weights, texts.texts(lambda _: None), threads=0)
        source = texts.name
        if note:
            print(printable(note), file=sys.stderr)
    else:
        raise ValueError("--data: expected a run that trains on text, got another; leave it out")
    if not figures:
        raise ValueError(f"run {chosen.folder.path.name}: expected a task with metrics, got one without")
    print(f"run {chosen.folder.path.name}, step {weights.step}: {format_figures(figures)} on {source}")
    return 0


def newest(chosen: Run) -> Replica:
    """The replica as the journal has it by now: up to a checkpoint's time newer than the newest checkpoint."""
    rebuilt = history.newest(chosen, progress=replay_progress())
    for line in (*chosen.prepared.reasons, *rebuilt.problems):
        print(printable(line), file=sys.stderr)
    return rebuilt.holding.replica
