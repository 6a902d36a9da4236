"""`fedlearn check`: whether a run's files are whole, and of one run."""

import argparse

from fedlearn.commands.arguments import add_run
from fedlearn.server.run import Run, edited_settings, find
from fedlearn.storage.checkpoint import checkpoints_in, read_checkpoint
from fedlearn.storage.durable import StorageError
from fedlearn.storage.journal import check_header, stretches_of
from fedlearn.storage.origin import check_same_run
from fedlearn.storage.segment import segments_in
from fedlearn.terminal import printable


def add_check(parser: argparse.ArgumentParser) -> None:
    """Which run."""
    add_run(parser)


def check_command(options: argparse.Namespace) -> int:
    """`fedlearn check RUN`: 0 when every file is whole and of this run, 1 and what to do about it otherwise.

    Weights are not computed again: `fedlearn replay` does that.
    """
    chosen = find(options.runs, options.run)
    origin = chosen.origin
    print(printable(f"run {chosen.folder.path.name}: identity {origin.identity.hex()}, begun at step {origin.step}"))
    print(printable(f"settings: {len(origin.settings)} are those that the run was begun with"))
    print(printable(f"data: {', '.join(sorted(origin.files))} are those that the run was begun with"))
    for sentence in edited_settings(chosen.folder, chosen.config):
        print(printable(f"changed: {sentence}"))
    problems = [*chosen.notices, *_check_checkpoints(chosen), *_check_journal(chosen)]
    for problem in problems:
        print(printable(f"problem: {problem}"))
    print(_counted(len(problems), "problem") if problems else "everything is whole, and of one run")
    return 1 if problems else 0


def _check_checkpoints(chosen: Run) -> list[str]:
    problems = []
    for path in [chosen.folder.genesis, *checkpoints_in(chosen.folder)]:
        try:
            checkpoint = read_checkpoint(path)
            check_same_run(chosen.origin, checkpoint.origin, path)
        except StorageError as error:
            problems.append(str(error))
            continue
        print(f"{path.name}: step {checkpoint.step}, whole")
    return problems


def _check_journal(chosen: Run) -> list[str]:
    problems: list[str] = []
    folder = chosen.folder.journal
    stretches = stretches_of(folder, problems)
    steps = ", ".join(f"{stretch.first} to {stretch.end}" for stretch in stretches) or "none"
    print(f"journal: {_counted(len(segments_in(folder)), 'segment')}, steps {steps}")
    for path in segments_in(folder):
        try:
            check_header(path, chosen.origin.identity, [])
        except StorageError as error:
            problems.append(str(error))
    return problems


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
