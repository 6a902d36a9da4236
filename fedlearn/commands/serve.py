"""`fedlearn serve`: start a run, or resume one, and the server for its volunteers."""

import argparse
import os
import sys
from contextlib import ExitStack
from pathlib import Path

import msgspec

from es_core import usable_processors
from fedlearn.commands.invocation import invocation
from fedlearn.commands.parser import Parser
from fedlearn.commands.progress import data_progress, replay_progress
from fedlearn.config import (
    OPTIONS,
    ConfigError,
    Schema,
    SourceFile,
    add_config_flags,
    flag_of,
    load_config,
    resume_config,
    setting_of,
    task_of,
)
from fedlearn.coordination.golden import check_core
from fedlearn.server.creation import create
from fedlearn.server.gate import open_gate, with_local
from fedlearn.server.listening import listen
from fedlearn.server.run import Run, edited_settings, kind_named, kind_of, load, load_run_config, named_task
from fedlearn.server.serving import serve
from fedlearn.server.supervision import Begun, Supervisor, tell
from fedlearn.server.trainer import Trainer
from fedlearn.storage.runs import lock_run, resolve_run
from fedlearn.tasks.blocks import n_rows
from fedlearn.tasks.kind import Kind
from fedlearn.tasks.registry import find_kind, kind_names
from fedlearn.tasks.task import Setting, Task
from fedlearn.terminal import printable

MOST_VOLUNTEERS = 8
"""Of those that a server starts by itself for a task on PyTorch, which takes a few hundred MB in each."""

SMALL_MODEL = 10_000_000
"""Parameters below which a volunteer for each processor does more than one with all of them."""


def add_serve(parser: Parser) -> None:
    """The flags of a run's settings, those of every kind of task among them."""
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="TOML or JSON file with settings of the run")
    parser.add_argument("--resume", metavar="RUN", help="go on with a run: its number, its folder, or 'latest'")
    parser.add_argument(
        "--token", dest="token_file", default=argparse.SUPPRESS, metavar="FILE", help="the same as --token-file"
    )
    parser.add_argument(
        "--supervise", action="store_true", help="go on with the run by itself when the server was killed or crashed"
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
    file = _read_config(options.config)
    with ExitStack() as held:
        if options.resume is None:
            text = task_of(file, os.environ, vars(options))
            task = named_task(text)
            kind = kind_named(text, task)
            schema = _schema_of(kind, options)
            defaults = {**_small_volunteers(task.task), **task.task.settings} if task is not None else {}
            config = load_config(schema, file, os.environ, vars(options), defaults=defaults)
            if task is not None:
                config = config.replace({"task": task.entry})
            # Before there is a folder: a run that can't be served must not become the latest.
            listening = held.enter_context(listen(config.server.host, config.server.port))
            gate = open_gate(config.server, Path(config.run.runs), os.environ)
            run = create(kind, config, task, progress=data_progress())
            held.enter_context(lock_run(run.folder))
        else:
            run = _resumed(file, options)
            held.enter_context(lock_run(run.folder))
            listening = held.enter_context(listen(run.config.server.host, run.config.server.port))
            gate = open_gate(run.config.server, run.folder.path.parent, os.environ)
        trainer, notices = Trainer.open(run, progress=replay_progress())
        held.callback(trainer.close)
        if options.tell is not None:
            tell(options.tell, Begun(str(run.folder.path.resolve()), listening.getsockname()[1]))
        _introduce(run, trainer.replica.step, notices)
        gate = with_local(gate, run.folder.local_identity)
        return serve(trainer, listening, gate, command=invocation("serve"))


def _supervised(options: argparse.Namespace) -> int:
    """Runs servers in processes of their own; each is given what this one was, later ones with the run to resume."""

    def command(begun: Begun | None, descriptor: int) -> list[str]:
        resumed = [] if begun is None else ["--resume", begun.folder, "--port", str(begun.port)]
        return [sys.executable, "-m", "fedlearn", *options.given, *resumed, "--tell", str(descriptor)]

    return Supervisor(command).run()


def _small_volunteers(task: Task) -> dict[str, Setting]:
    """Local volunteers of one thread each, where their weights fit: small operations gain nothing from threads."""
    processors = usable_processors()
    n_volunteers = min(processors, MOST_VOLUNTEERS) if task.layout.size < SMALL_MODEL else 1
    return {"volunteers": n_volunteers, "threads": max(processors // n_volunteers, 1)}


def _resumed(file: SourceFile | None, options: argparse.Namespace) -> Run:
    folder = resolve_run(Path(options.runs if "runs" in options else _runs_in(file)), options.resume)
    kind, written = kind_of(folder), load_run_config(folder)
    for sentence in edited_settings(folder, written):
        print(printable(sentence))
    config = resume_config(_schema_of(kind, options), written, file, os.environ, vars(options))
    task = named_task(config.run.task)
    if (given := kind_named(config.run.task, task)).name != kind.name:
        raise ConfigError(
            f"task: expected one of kind {kind.name}, as in the run that is resumed, got {config.run.task} of kind "
            f"{given.name}; leave it out, or start a new run"
        )
    return load(folder, config.replace({"task": task.entry if task is not None else kind.name}), task=task)


def _runs_in(file: SourceFile | None) -> str:
    """Where runs are, by the configuration's file or the environment."""
    return setting_of("runs", file, os.environ)


def _schema_of(kind: Kind, options: argparse.Namespace) -> Schema:
    """The settings of runs of this kind. Raises ConfigError for a flag of another kind's."""
    schema = Schema(kind.options)
    for name in kind_names():
        for key in find_kind(name).options.__struct_fields__:
            if key in options and key not in schema.fields:
                raise ConfigError(f"{flag_of(key)}: expected a setting of {kind.name}, got one of {name}; leave it out")
    return schema


def _read_config(path: str | None) -> SourceFile | None:
    if path is None:
        return None
    try:
        return path, Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: expected a readable TOML or JSON file: {error}") from error


def _introduce(run: Run, step: int, notices: list[str]) -> None:
    prepared, settings = run.prepared, run.config.strategy
    rows = sum(n_rows(block) for block in prepared.blocks)
    data = f", {rows} {'rows' if prepared.entry else prepared.objective.unit} of data" if rows else ""
    print(
        f"run {run.folder.path.name} in {run.folder.path}: {prepared.objective.layout.size} parameters of "
        f"{prepared.entry or run.config.run.task}{data}, population {settings.population_limit}, from step {step}"
    )
    for line in (*prepared.reasons, *notices):
        print(printable(line))
    sys.stdout.flush()
