"""`fedlearn runs`: what runs there are."""

import argparse
import sys
from pathlib import Path

import msgspec

from fedlearn.commands.arguments import add_root
from fedlearn.config import RunConfig
from fedlearn.runs.ledger import check_credit
from fedlearn.runs.listing import Listed, as_json, look_at
from fedlearn.runs.run import age_of
from fedlearn.storage.journal.journal import read_journal
from fedlearn.storage.journal.segment import first_step_of, segments_in
from fedlearn.storage.runs import RunFolder, list_runs, resolve_run
from fedlearn.system.invocation import invocation
from fedlearn.terminal import escape, format_duration, format_figures
from fedlearn.terminal.wrapping import columns_of, wrapped


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `fedlearn runs`."""
    add_root(parser)
    parser.add_argument("--json", action="store_true", help="everything about each run, as JSON")
    parser.add_argument(
        "--credit", metavar="RUN", help="how much each identity contributed to a run, checked against its journal"
    )


def runs_command(options: argparse.Namespace) -> int:
    """`fedlearn runs`: a line a run; or with a run's credit a line an identity, 1 where it is not what was done."""
    if options.credit is not None:
        return _show_credit(resolve_run(Path(options.runs), options.credit))
    folders = list_runs(Path(options.runs))
    if options.json:
        listed = [as_json(look_at(folder)) for folder in folders]
        print(msgspec.json.format(msgspec.json.encode(listed), indent=2).decode())
        return 0
    if not folders:
        print(escape(f"no runs in {options.runs}; start one with: {invocation('serve')}"))
        return 0
    columns = columns_of(sys.stdout)
    head = f"{'run':>4}  {'state':7}  {'steps':>8}  {'loss':>20}  {'held out':>20}  {'age':>8}"
    for figures, configuration in [(head, "configuration"), *(_describe(look_at(folder)) for folder in folders)]:
        print(_fitted(escape(figures), escape(configuration), columns))
    return 0


def _show_credit(folder: RunFolder) -> int:
    segments = segments_in(folder.journal)
    kept = read_journal(folder.journal, start=first_step_of(segments[0])) if segments else iter(())
    credit = check_credit(folder, kept)
    print(f"{'identity':16}  {'name':20}  {'members':>12}  {'work':>14}  {'hours':>8}  {'checked':>8}  {'false':>5}")
    for identity, earned in sorted(credit.earned.items(), key=lambda entry: -entry[1].members):
        columns = f"{earned.members:>12}  {earned.work:>14}  {earned.seconds / 3600:>8.2f}"
        checks = f"{earned.agreed:>8}  {earned.caught:>5}"
        print(escape(f"{identity[:16]:16}  {earned.name[:20]:20}  {columns}  {checks}"))
    if credit.n_unclaimed:
        why = "the server ended before it wrote who did them"
        print(f"{credit.n_unclaimed} members of the journal are credited to nobody: {why}")
    for entry in credit.false_entries:
        print(f"steps {entry.first_step} to {entry.step}: credit was given for other members than the journal has")
    return 1 if credit.false_entries else 0


def _fitted(figures: str, configuration: str, columns: int | None) -> str:
    """A line, or on a terminal where it is too long the configuration below the figures."""
    line = f"{figures}  {configuration}".rstrip()
    if columns is None or len(line) <= columns:
        return line
    return f"{figures}\n{wrapped(configuration, columns, indent=' ' * 6)}"


def _describe(listed: Listed) -> tuple[str, str]:
    """The run's figures, and its configuration."""
    name, last = listed.folder.path.name, listed.last
    if listed.config is None:
        return f"{name:>4}", f"unreadable: {listed.problem}"
    loss = format_figures(last.shown) if last is not None else ""
    held_out = format_figures(listed.validation)
    figures = (
        f"{name:>4}  {listed.state or 'stopped':7}  {listed.step:>8}  {loss or '-':>20}  {held_out or '-':>20}  "
        f"{format_duration(age_of(listed.folder)):>8}"
    )
    return figures, _summary(listed.config)


def _in_words(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _summary(config: RunConfig) -> str:
    """What tells a run from its neighbours: the task, its options that are not the usual ones, and the strategy."""
    options = config.options
    usual = type(options)()
    changed = [
        f"{key.replace('_', ' ')} {_in_words(getattr(options, key))}"
        for key in options.__struct_fields__
        if getattr(options, key) != getattr(usual, key)
    ]
    settings, strategy = config.optimizer, config.strategy
    return ", ".join(
        [
            config.run.task,
            *changed,
            f"population {strategy.population_limit}",
            f"{settings.optimizer} {settings.learning_rate:g}",
            f"sigma {strategy.sigma:g}",
        ]
    )
