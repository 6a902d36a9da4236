"""`fedlearn check`: whether a run's files are whole, and of one run."""

import argparse

import msgspec

from fedlearn.commands.arguments import add_run
from fedlearn.commands.output import add_output, bars_of
from fedlearn.config import journal_bytes_kept
from fedlearn.runs.run import Run, edited_settings, find
from fedlearn.storage.checkpoint import checkpoints_in, read_checkpoint, step_of
from fedlearn.storage.durable import StorageError
from fedlearn.storage.journal.segment import segments_in
from fedlearn.storage.journal.wholeness import examine_journal
from fedlearn.storage.logs.metrics import read_last_metrics
from fedlearn.storage.origin import check_same_run
from fedlearn.terminal import counted, printable
from fedlearn.terminal.bars import Bar


def add_check(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `fedlearn check`."""
    add_run(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object; its problems are a list")
    add_output(parser)


def check_command(options: argparse.Namespace) -> int:
    """`fedlearn check RUN`: 0 when every file is whole and of this run, 1 and what to do about it otherwise.

    Weights are not computed again: `fedlearn replay` does that.
    """
    chosen = find(options.runs, options.run)
    origin = chosen.origin
    name, changed = chosen.folder.path.name, edited_settings(chosen.folder, chosen.config)
    found: list[str] = []
    with bars_of(options).bar("reading") as bar:
        problems = [*chosen.notices, *_check_checkpoints(chosen, bar, found), *_check_journal(chosen, bar, found)]
    if options.json:
        report = {"run": name, "identity": origin.identity.hex(), "begun_at_step": origin.step, "found": found}
        print(msgspec.json.encode(report | {"changed": changed, "problems": problems}).decode())
        return 1 if problems else 0
    print(printable(f"run {name}: identity {origin.identity.hex()}, begun at step {origin.step}"))
    print(printable(f"settings: {len(origin.settings)} are as the run began with them"))
    print(printable(f"data: {', '.join(sorted(origin.files))} are as the run began with them"))
    for sentence in changed:
        print(printable(f"changed: {sentence}"))
    for line in found:
        print(printable(line))
    for problem in problems:
        print(printable(f"problem: {problem}"))
    print(counted(len(problems), "problem") if problems else "all files are complete and belong together")
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
    folder, origin = chosen.folder, chosen.origin
    # Read before the journal, which is written first: a server that goes on meanwhile is never ahead of it.
    kept = [origin.step, *map(step_of, checkpoints_in(folder))]
    recorded = [line.step + 1 for line in read_last_metrics(folder.metrics)]
    begin = min(kept[1:], default=origin.step) if _may_have_dropped(chosen) else origin.step
    bar.begin("reading the journal")
    journal = examine_journal(folder.journal, identity=origin.identity, begin=begin, end=max(kept + recorded))
    steps = ", ".join(f"{stretch.first} to {stretch.end}" for stretch in journal.stretches) or "none"
    found.append(f"journal: {counted(journal.n_segments, 'segment')}, steps {steps}")
    return journal.problems


def _may_have_dropped(chosen: Run) -> bool:
    """Whether the journal is so long that `keep_journal` may have dropped what lies before the oldest checkpoint."""
    kept_bytes = journal_bytes_kept(chosen.config.run)
    length_bytes = sum(path.stat().st_size for path in segments_in(chosen.folder.journal))
    return kept_bytes is not None and 2 * length_bytes > kept_bytes  # an eighth is dropped at a time
