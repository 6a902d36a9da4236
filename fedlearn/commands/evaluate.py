"""`fedlearn eval`: how good a run's newest weights are."""

import argparse
import sys
from pathlib import Path

import msgspec

from fedlearn.commands.arguments import add_run
from fedlearn.commands.progress import replay_progress
from fedlearn.es.replica import Replica
from fedlearn.server import history
from fedlearn.server.run import Run, find
from fedlearn.tasks.kind import ReadsText
from fedlearn.tasks.rnn.dataset import load_text
from fedlearn.terminal import format_figures, printable


def add_eval(parser: argparse.ArgumentParser) -> None:
    """What is measured on."""
    add_run(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object; data is null for what the run holds out")
    parser.add_argument("--data", metavar="FILE", help="text to measure on (default: what the run holds out)")


def eval_command(options: argparse.Namespace) -> int:
    """`fedlearn eval RUN`: prints the figures of unperturbed weights on held-out data."""
    chosen = find(options.runs, options.run, with_task=True)
    examiner, weights = chosen.prepared.examiner, newest(chosen)
    if options.data is None:
        figures, source = examiner.validate(weights.weights, threads=0), "what the run holds out"
    elif isinstance(examiner, ReadsText):
        text = load_text(options.data, lambda path: Path(path).read_bytes())
        figures, source = examiner.validate_on(weights.weights, text, threads=0), options.data
    else:
        raise ValueError("--data: expected a run that trains on text, got another; leave it out")
    if not figures:
        raise ValueError(f"run {chosen.folder.path.name}: expected a task with metrics, got one without")
    name, step = chosen.folder.path.name, weights.step
    if options.json:
        print(msgspec.json.encode({"run": name, "step": step, "data": options.data, "figures": figures}).decode())
    else:
        print(f"run {name}, step {step}: {format_figures(figures)} on {source}")
    return 0


def newest(chosen: Run) -> Replica:
    """The replica as the journal has it by now: up to a checkpoint's time newer than the newest checkpoint."""
    rebuilt = history.newest(chosen, progress=replay_progress())
    for line in (*chosen.prepared.reasons, *rebuilt.problems):
        print(printable(line), file=sys.stderr)
    return rebuilt.holding.replica
