"""`fedlearn eval`: how good a run's weights are."""

import argparse
import sys
from collections.abc import Callable

import msgspec

from fedlearn.commands.arguments import add_run, add_step, add_task
from fedlearn.commands.output import add_output, bars_of
from fedlearn.data.sources import open_source
from fedlearn.es.replica import Replica
from fedlearn.runs import history
from fedlearn.runs.best import Step, number_of
from fedlearn.runs.replaying import replaying
from fedlearn.runs.run import Run, find, lacks_code, needing_task
from fedlearn.tasks.kind import TextExaminer
from fedlearn.terminal import format_figures, printable
from fedlearn.terminal.bars import Bar, Bars
from fedlearn.text.source import Source


def add_eval(parser: argparse.ArgumentParser) -> None:
    """What is measured on."""
    add_run(parser)
    add_task(parser, "whose metrics are measured")
    add_step(parser)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object; its data is null for the run's held-out data"
    )
    parser.add_argument(
        "--data",
        action="append",
        metavar="TEXT",
        help="text to measure on, as for serve; may be repeated (default: the run's held-out data)",
    )
    parser.add_argument("--encoding", default="utf-8", metavar="NAME", help="encoding of --data (default: utf-8)")
    add_output(parser)


def eval_command(options: argparse.Namespace) -> int:
    """`fedlearn eval RUN`: prints the figures of unperturbed weights on held-out data."""
    chosen = find(options.runs, options.run, task=options.task)
    if lacks_code(chosen):
        raise needing_task(chosen.folder, chosen.config, "measuring", options.given)
    bars = bars_of(options)
    examiner, weights = chosen.prepared.examiner, replica_at(chosen, options.step, bars)
    with bars.bar("measuring", "bytes") as bar:
        if options.data is None:
            figures, source, note = examiner.validate(weights.weights, threads=0), "the run's held-out data", ""
        elif isinstance(examiner, TextExaminer):
            texts = open_source(options.data, options.encoding, progress=bar)
            bar.begin("measuring", "bytes")
            figures, note = examiner.validate_on(weights.weights, texts.texts(_reader(bar, texts)), threads=0)
            source = texts.name
        else:
            raise ValueError("--data: expected a run that trains on text, got another; leave it out")
    if note:
        print(printable(note), file=sys.stderr)
    if not figures:
        raise ValueError(f"run {chosen.folder.path.name}: expected a task with metrics, got one without")
    name, step = chosen.folder.path.name, weights.step
    if options.json:
        print(msgspec.json.encode({"run": name, "step": step, "data": options.data, "figures": figures}).decode())
    else:
        print(f"run {name}, step {step}: {format_figures(figures)} on {source}")
    return 0


def _reader(bar: Bar, texts: Source) -> Callable[[int], None]:
    """Takes the bytes that were read, one piece after another, to the bar."""
    n_read = 0

    def read(n_bytes: int) -> None:
        nonlocal n_read
        n_read += n_bytes
        bar.reach(n_read, texts.size_bytes)

    return read


def replica_at(chosen: Run, step: Step, bars: Bars) -> Replica:
    """The replica at a step; the newest is as the journal has it by now, newer than the newest checkpoint."""
    until = number_of(chosen, step)
    with replaying(bars, chosen, until=until) as progress:
        rebuilt = history.rebuilt_at(chosen, until, progress=progress)
    for line in (*map(str, chosen.prepared.reasons), *rebuilt.problems):
        print(printable(line), file=sys.stderr)
    return rebuilt.holding.replica
