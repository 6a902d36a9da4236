"""`fedlearn runs`: what runs there are."""

import argparse
import time
from pathlib import Path

from fedlearn.commands.arguments import add_root
from fedlearn.commands.invocation import invocation
from fedlearn.config import RunConfig
from fedlearn.coordination.status import RunStatus
from fedlearn.server.ledger import check_credit
from fedlearn.server.run import age_of, load_run_config
from fedlearn.storage.durable import StorageError
from fedlearn.storage.journal import read_journal
from fedlearn.storage.metrics import read_last_metrics
from fedlearn.storage.runs import RunFolder, list_runs, resolve_run
from fedlearn.storage.segment import first_step_of, segments_in
from fedlearn.storage.status import is_alive, read_status
from fedlearn.terminal import escape, format_duration, format_figures

_VALIDATION_LINES = 10_000
"""Validation is measured every now and then: so many of the last lines of metrics hold one."""


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Where they are, and whether a run's credit is wanted."""
    add_root(parser)
    parser.add_argument("--credit", metavar="RUN", help="who did how much in a run, held against its journal")


def runs_command(options: argparse.Namespace) -> int:
    """`fedlearn runs`: a line a run; or with a run's credit a line an identity, 1 where it is not what was done."""
    if options.credit is not None:
        return _show_credit(resolve_run(Path(options.runs), options.credit))
    folders = list_runs(Path(options.runs))
    if not folders:
        print(escape(f"no runs in {options.runs}; start one with: {invocation('serve')}"))
        return 0
    print(f"{'run':>4}  {'state':7}  {'steps':>8}  {'loss':>22}  {'held out':>22}  {'age':>8}  configuration")
    for folder in folders:
        print(escape(_describe(folder)))
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
        print(f"{credit.n_unclaimed} members of the journal are nobody's: {why}")
    for entry in credit.false_entries:
        print(f"steps {entry.first_step} to {entry.step}: credit was given for other members than the journal has")
    return 1 if credit.false_entries else 0


def _describe(folder: RunFolder) -> str:
    try:
        config = load_run_config(folder)
    except (ValueError, StorageError, OSError) as error:
        return f"{folder.path.name:>4}  unreadable: {error}"
    lines = read_last_metrics(folder.metrics, _VALIDATION_LINES)
    validations = [line.validation for line in lines if line.validation]
    steps = lines[-1].step + 1 if lines else config.run.step_num
    loss = format_figures(lines[-1].shown) if lines else ""
    held_out = format_figures(validations[-1]) if validations else ""
    return (
        f"{folder.path.name:>4}  {_state_of(folder):7}  {steps:>8}  {loss or '-':>22}  {held_out or '-':>22}  "
        f"{format_duration(age_of(folder)):>8}  {_summary(config)}"
    )


def _state_of(folder: RunFolder) -> str:
    """Whether a server has the run just now, by what it says itself; a line where none does."""
    status = read_status(folder.status, RunStatus)
    if status is None or status.state == "ended" or not is_alive(status.pid, status.time, now=time.time()):
        return "-"
    return status.state


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
