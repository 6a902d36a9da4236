"""`fedlearn export`: a run's weights or figures for other programs."""

import argparse
import sys
from pathlib import Path

from fedlearn.commands.arguments import add_run, add_step, add_task
from fedlearn.commands.output import add_output, bars_of
from fedlearn.runs.best import number_of
from fedlearn.runs.export import FORMATS, export, format_of
from fedlearn.runs.replaying import replaying
from fedlearn.runs.run import find
from fedlearn.terminal import printable


def add_export(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `fedlearn export`."""
    add_run(parser)
    add_step(parser)
    add_task(parser, "for all that its module saves, not only what was learned")
    parser.add_argument("--to", metavar="FILE", help="file to write (default: run-<number> with the format's ending)")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="safetensors: a PyTorch state_dict; onnx: one step of the recurrent network; csv: the figures of all "
        "steps; default: by the ending of --to, else safetensors",
    )
    add_output(parser)


def export_command(options: argparse.Namespace) -> int:
    """`fedlearn export RUN`."""
    path = Path(options.to) if options.to is not None else None
    form = options.format or format_of(path)
    chosen = find(options.runs, options.run, task=options.task if form != "csv" else None)
    if form == "csv" and options.step is not None:
        raise ValueError(f"--step: expected none for csv, which has all steps, got {options.step}; leave it out")
    until = number_of(chosen, options.step)
    with replaying(bars_of(options), chosen, until=until) as progress:
        done = export(chosen, path, form, step=until, progress=progress)
    for line in (*map(str, chosen.prepared.reasons), *done.notes):
        print(printable(line), file=sys.stderr)
    print(printable(f"{done.path}: {done.content} of run {chosen.folder.path.name}"))
    return 0
