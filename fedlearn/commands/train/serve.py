"""`fedlearn serve`: start a run, or resume one, and the server for its volunteers."""

import argparse
import os
import shlex
import sys
from contextlib import ExitStack
from pathlib import Path

import msgspec

from es_core import usable_processors
from fedlearn.commands.arguments import DEFAULT_RUNS, check_device
from fedlearn.commands.output import add_output, bars_of, terminal_of
from fedlearn.commands.parser import Parser
from fedlearn.commands.train.mesh import Mesh
from fedlearn.config import (
    OPTIONS,
    ConfigError,
    RunConfig,
    Schema,
    SourceFile,
    add_config_flags,
    flag_of,
    given_settings,
    load_config,
    notes_on,
    resume_config,
    setting_of,
    started_anew,
    task_of,
)
from fedlearn.coordination.golden import check_core
from fedlearn.runs.creation import create
from fedlearn.runs.noise_space import warnings_if_open
from fedlearn.runs.repeating import as_begun
from fedlearn.runs.replaying import replaying
from fedlearn.runs.run import (
    Run,
    edited_settings,
    kind_named,
    kind_of,
    load,
    load_run_config,
    named_task,
    needing_task,
    task_flag,
)
from fedlearn.server.callback_file import load_callback
from fedlearn.server.listening import listen
from fedlearn.server.local_volunteers import STOP_S, volunteer_ahead
from fedlearn.server.security import open_security, with_local
from fedlearn.server.serving import serve
from fedlearn.server.supervision import Serving, Supervisor, tell
from fedlearn.server.training.trainer import Trainer
from fedlearn.storage.runs import lock_run, resolve_run
from fedlearn.storage.task_file import is_task_file
from fedlearn.system.invocation import invocation
from fedlearn.system.processes import CAN_PASS_DESCRIPTORS, program
from fedlearn.system.signals import stop_signals_interrupt
from fedlearn.system.waiting import WaitingProcess
from fedlearn.tasks.blocks import n_rows
from fedlearn.tasks.kind import Kind, TextExaminer
from fedlearn.tasks.registry import find_kind, kind_names
from fedlearn.tasks.task import Setting, Task
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.terminal import printable

MOST_VOLUNTEERS = 8
"""Volunteers that a server starts by itself, at most, for a task on PyTorch, which takes a few hundred MB in each."""

SMALL_MODEL = 10_000_000
"""Parameters below which a volunteer for each processor does more than one with all of them."""

_MODELS = {"rnn": "a recurrent network"}
"""Tasks that have a plain name."""

_ALWAYS_SHOWN = {"perturb", "measure", "share"}
"""Settings whose reasons stand among the first lines: how it learns, and what volunteers need."""


def add_serve(parser: Parser) -> None:
    """The flags of a run's settings, those of every kind of task among them."""
    parser.add_argument(
        "config",
        nargs="?",
        metavar="CONFIG",
        help="TOML or JSON file with settings; a run's config.json repeats that run",
    )
    parser.add_argument("--resume", metavar="RUN", help="go on with a run: its number, its folder, or 'latest'")
    parser.add_argument(
        "--token", dest="token_file", default=argparse.SUPPRESS, metavar="FILE", help="the same as --token-file"
    )
    parser.add_argument(
        "--supervise", action="store_true", help="restart the server and go on with the run after a kill or crash"
    )
    parser.add_argument(
        "--callback",
        action="append",
        default=[],
        metavar="FILE.py:NAME",
        help="a fedlearn.Callback of yours, which is told what happens in the run; also MODULE:NAME; may be repeated",
    )
    parser.add_argument(
        "--mesh",
        action=Mesh,
        metavar="crews=C,shards=S",
        help="C crews of S local volunteers that cut a vocabulary between them; sets seats, shards and volunteers",
    )
    add_output(parser).add_argument(
        "--verbose",
        action="store_true",
        help="print how settings were chosen and when own volunteers join; the board shows it as well",
    )
    parser.add_argument("--tell", type=int, help=argparse.SUPPRESS)  # what a supervisor reads
    schemas: dict[type[msgspec.Struct], list[str]] = {}
    for name in kind_names():
        schemas.setdefault(find_kind(name).options, []).append(name)
    for number, (options, names) in enumerate(schemas.items()):
        schema, groups = Schema(options), None if number == 0 else [OPTIONS]
        add_config_flags(parser, schema, groups=groups, titles={OPTIONS: f"settings of {', '.join(names)}"})
        parser.hide(schema.advanced)


def serve_command(options: argparse.Namespace) -> int:
    """Serves until the run ends; gives the exit code."""
    if options.supervise and options.tell is None:
        return _supervised(options)
    check_core()
    file, bars = _read_config(options.config, is_new=options.resume is None), bars_of(options)
    callbacks = [load_callback(entry) for entry in options.callback]
    with ExitStack() as held:
        if options.resume is None:
            text = task_of(file, os.environ, vars(options))
            task = named_task(text)
            kind = kind_named(text, task)
            schema = _schema_of(kind, options)
            usual = _defaults(task)
            config = load_config(schema, file, os.environ, vars(options), defaults=usual)
            ignored = notes_on(schema, file)
            if task is not None:
                config = config.replace({"task": task.entry})
            if config.volunteers.volunteers:
                check_device(config.volunteers.device)
            ahead = _volunteer_ahead(config, held)
            # Before there is a folder: a run that can't be served must not become the latest.
            listening = held.enter_context(listen(config.server.host, config.server.port))
            security = open_security(config.server, Path(config.run.runs), os.environ)
            with stop_signals_interrupt(), bars.bar("preparing the run") as bar:
                run = create(kind, config, task, trust=security.trust, progress=bar)
            held.enter_context(lock_run(run.folder))
        else:
            (run, usual), ignored = _resumed(file, options), ()
            ahead = _volunteer_ahead(run.config, held)
            held.enter_context(lock_run(run.folder))
            listening = held.enter_context(listen(run.config.server.host, run.config.server.port))
            security = open_security(run.config.server, run.folder.path.parent, os.environ)
        with replaying(bars, run) as progress:
            trainer, notices = Trainer.open(run, progress=progress)
        held.callback(trainer.close)
        if options.tell is not None:
            tell(options.tell, Serving(str(run.folder.path.resolve()), listening.getsockname()[1]))
        terminal = terminal_of(options)
        warnings = warnings_if_open(run.config, security.trust)
        about = [_title(run, trainer.replica.step), *_reasons(run, options), *notices, *warnings]
        for line in [*(printable(note) for note in ignored), *about]:
            terminal.say(line)
        security = with_local(security, run.folder.local_identity)
        return serve(
            trainer,
            listening,
            security,
            callbacks=callbacks,
            next_commands=_next(run),
            terminal=terminal,
            bars=bars,
            ahead=ahead,
            usual=usual,
        )


def _volunteer_ahead(config: RunConfig, held: ExitStack) -> WaitingProcess | None:
    """A volunteer that imports PyTorch while the run is prepared, where its task has imported that here."""
    if config.volunteers.volunteers == 0 or "torch" not in sys.modules:
        return None
    ahead = volunteer_ahead()
    held.callback(ahead.stop, patience_s=STOP_S)  # one that no run has taken still waits
    return ahead


def _supervised(options: argparse.Namespace) -> int:
    """Runs servers in processes of their own; each is given what this one was, later ones with the run to resume."""
    if not CAN_PASS_DESCRIPTORS:
        raise ConfigError(
            "--supervise: expected Linux or macOS, got Windows; leave it out, and go on "
            "after a crash with --resume latest"
        )

    def command(begun: Serving | None, descriptor: int) -> list[str]:
        resumed = [] if begun is None else ["--resume", begun.folder, "--port", str(begun.port)]
        return program([*options.given, *resumed, "--tell", str(descriptor)])

    return Supervisor(command).run()


def _defaults(task: NamedTask | None) -> dict[str, Setting]:
    """The settings that a task brings."""
    return {**_small_volunteers(task.task), **task.task.settings} if task is not None else {}


def _small_volunteers(task: Task) -> dict[str, Setting]:
    """Local volunteers of one thread each, where their weights fit: small operations gain nothing from threads."""
    processors = usable_processors()
    n_volunteers = min(processors, MOST_VOLUNTEERS) if task.layout.size < SMALL_MODEL else 1
    return {"volunteers": n_volunteers, "threads": max(processors // n_volunteers, 1)}


def _resumed(file: SourceFile | None, options: argparse.Namespace) -> tuple[Run, dict[str, Setting]]:
    """The run that is resumed, and the settings that its task brings."""
    folder = resolve_run(Path(options.runs if "runs" in options else _runs_in(file)), options.resume)
    kind, written = kind_of(folder), load_run_config(folder)
    for sentence in edited_settings(folder, written):
        print(printable(sentence))
    schema = _schema_of(kind, options)
    config = resume_config(schema, written, file, os.environ, vars(options))
    if is_task_file(config.run.task) and config.run.task != task_of(file, os.environ, vars(options)):
        raise needing_task(folder, config, "going on")
    task = named_task(config.run.task)
    if (given := kind_named(config.run.task, task)).name != kind.name:
        if "task" not in options:
            raise needing_task(folder, config, "going on")
        raise ConfigError(
            f"task: expected one of kind {kind.name}, as in the run that is resumed, got {config.run.task} of kind "
            f"{given.name}; leave it out, or start a new run"
        )
    usual = _defaults(task)
    anew = started_anew(schema, written, usual)
    config = resume_config(schema, anew, file, os.environ, vars(options))
    if config.volunteers.volunteers:
        check_device(config.volunteers.device)
    named = given_settings(schema, file, os.environ, vars(options))
    changed = [key for key in schema.fields if key in schema.of_start and config.get(key) != written.get(key)]
    if left := [f"{flag_of(key)} {shlex.quote(str(written.get(key)))}" for key in changed if key not in named]:
        print(printable(f"not taken over from the start before, give it again where it is wanted: {' '.join(left)}"))
    return load(folder, config.replace({"task": task.entry if task is not None else kind.name}), task=task), usual


def _runs_in(file: SourceFile | None) -> str:
    """The folder of runs, from the configuration's file or the environment."""
    return setting_of("runs", file, os.environ)


def _schema_of(kind: Kind, options: argparse.Namespace) -> Schema:
    """The settings of runs of this kind.

    Raises:
        ConfigError: a flag belongs to another kind.
    """
    schema = Schema(kind.options)
    for name in kind_names():
        for key in find_kind(name).options.__struct_fields__:
            if key in options and key not in schema.fields:
                raise ConfigError(f"{flag_of(key)}: expected a setting of {kind.name}, got one of {name}; leave it out")
    return schema


def _read_config(path: str | None, *, is_new: bool) -> SourceFile | None:
    if path is None:
        return None
    if is_task_file(path):
        raise ConfigError(f"{path}: expected a TOML or JSON file, got a task; --task {path} trains it")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: expected a readable TOML or JSON file: {why}") from error
    return path, as_begun(Path(path), text, is_new=is_new)


def _title(run: Run, step: int) -> str:
    """What is trained, and on what."""
    prepared, task = run.prepared, run.config.run.task
    model = _MODELS.get(task, f"{Path(prepared.entry).name or task}, a model")
    rows = sum(n_rows(block) for block in prepared.blocks)
    learns = f" learns from {rows:,} {'rows' if prepared.entry else prepared.objective.unit}" if rows else ""
    names: tuple[str, ...] = getattr(run.config.options, "data", ())
    of = f" of {names[0]}" if len(names) == 1 else ""
    begun = f", from step {step}" if step else ""
    path = run.folder.path
    return (
        f"run {path.name} in {path}: {model} of {prepared.objective.layout.n_trained:,} parameters{learns}{of}{begun}"
    )


def _reasons(run: Run, options: argparse.Namespace) -> list[str]:
    """Why settings are as they are: of a new run those that its users must know, unless all are asked for."""
    is_all = options.verbose or options.resume is not None
    return [str(reason) for reason in run.prepared.reasons if is_all or reason.key in _ALWAYS_SHOWN]


def _next(run: Run) -> list[str]:
    """Commands for whoever has trained a run."""
    folder, root = run.folder.path, Path(os.environ.get("FEDLEARN_RUNS", DEFAULT_RUNS))
    name = folder.name if folder.parent == root else shlex.quote(str(folder))
    verbs = ["sample"] if isinstance(run.prepared.examiner, TextExaminer) else []
    return [
        *(f"{invocation(verb)} {name}" for verb in verbs),
        f"{invocation('eval')} {name}{task_flag(run.folder, run.config)}",
    ]
