"""`fedlearn plot`: the curves of runs."""

import argparse
from pathlib import Path

from fedlearn.commands.arguments import add_root
from fedlearn.runs.plot import AXES, plot
from fedlearn.storage.runs import resolve_run
from fedlearn.terminal import printable


def add_plot(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `fedlearn plot`."""
    parser.add_argument(
        "run", nargs="+", metavar="RUN", help="number of a run, its folder, or 'latest'; several at once"
    )
    add_root(parser)
    parser.add_argument("--to", default="runs.png", metavar="FILE", help=".png, .svg or .pdf (default: runs.png)")
    parser.add_argument(
        "--over",
        choices=AXES,
        default="steps",
        help="steps, seconds of training, or work of all trials (default: steps)",
    )


def plot_command(options: argparse.Namespace) -> int:
    """`fedlearn plot RUN...`."""
    folders = {folder.path: folder for text in options.run for folder in [resolve_run(Path(options.runs), text)]}
    path = Path(options.to)
    plot(folders.values(), path, axis=options.over)
    print(printable(f"{path}: {', '.join(f'run {folder.path.name}' for folder in folders.values())}"))
    return 0
