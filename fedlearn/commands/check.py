"""`fedlearn check`: whether a run's files are whole, and of one run."""

import argparse

from fedlearn.commands.arguments import add_run
from fedlearn.commands.output import add_output, bars_of
from fedlearn.server.run import Run, edited_settings, find
from fedlearn.storage.checkpoint import checkpoints_in, read_checkpoint
from fedlearn.storage.durable import StorageError
from fedlearn.storage.journal import check_header, stretches_of
from fedlearn.storage.origin import check_same_run
from fedlearn.storage.segment import segments_in
from fedlearn.terminal import printable
from fedlearn.terminal.bars import Bar


def add_check(parser: argparse.ArgumentParser) -> None:
    """Which run."""
    add_run(parser)
    add_output(parser)


def check_command(options: argparse.Namespace) -> int:
    """`fedlearn check RUN`: 0 when every file is whole and of this run, 1 and what to do about it otherwise.

    Weights are not computed again: `fedlearn replay` does that.
    """
    chosen = find(options.runs, options.run)
    origin = chosen.origin
    print(printable(f"run {chosen.folder.path.name}: identity {origin.identity.hex()}, begun at step {origin.step}"))
    print(printable(f"settings: {len(origin.settings)} are as the run began with them"))
    print(printable(f"data: {', '.join(sorted(origin.files))} are as the run began with them"))
    for sentence in edited_settings(chosen.folder, chosen.config):
        print(printable(f"changed: {sentence}"))
    found: list[str] = []
    with bars_of(options).bar("reading") as bar:
        problems = [*chosen.notices, *_check_checkpoints(chosen, bar, found), *_check_journal(chosen, bar, found)]
    for line in found:
        print(printable(line))
    for problem in problems:
        print(printable(f"problem: {problem}"))
    print(_counted(len(problems), "problem") if problems else "all files are complete and belong together")
    return 1 if problems else 0


def _check_checkpoints(chosen: Run, bar: Bar, found: list[str]) -> list[str]:
    """The problems; what is good is added to `found`, to be said when the bar is gone."""
    problems = []
    paths = [chosen.folder.genesis, *checkpoints_in(chosen.folder)]
    sizes = [path.stat().st_size if path.exists() else 0 for path in paths]
    bar.begin("reading the checkpoints", "bytes", sum(sizes))
    for number, path in enumerate(paths):
        bar.reach(sum(sizes[:number]))
        try:
            checkpoint = read_checkpoint(path)
            check_same_run(chosen.origin, checkpoint.origin, path)
        except StorageError as error:
            problems.append(str(error))
            continue
        found.append(f"{path.name}: step {checkpoint.step}, whole")
    return problems


def _check_journal(chosen: Run, bar: Bar, found: list[str]) -> list[str]:
    problems: list[str] = []
    bar.begin("reading the journal")
    folder = chosen.folder.journal
    stretches = stretches_of(folder, problems)
    steps = ", ".join(f"{stretch.first} to {stretch.end}" for stretch in stretches) or "none"
    found.append(f"journal: {_counted(len(segments_in(folder)), 'segment')}, steps {steps}")
    for path in segments_in(folder):
        try:
            check_header(path, chosen.origin.identity, [])
        except StorageError as error:
            problems.append(str(error))
    return problems


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
