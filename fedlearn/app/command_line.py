"""The command line: `fedlearn serve | join | sample | eval | runs | replay`, each with its `--help`."""

import argparse
import difflib
import io
import os
import platform
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import msgspec

from fedlearn.app import inspect, run
from fedlearn.config import ConfigError, RunConfig, SourceFile, add_config_flags, load_config, resume_config
from fedlearn.storage.durable import StorageError
from fedlearn.storage.runs import lock_run

DEFAULT_SERVER = "127.0.0.1:55551"
DEFAULT_RUNS = "trainingRuns"

Command = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None, *, program: str = "fedlearn") -> NoReturn:
    """Runs one command and exits with its code: 0 done, 1 failed, 2 wrong usage."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # the text of a sample may not exist in this terminal's encoding
    parser = _parser(program)
    given = sys.argv[1:] if arguments is None else arguments
    options, unknown = parser.parse_known_args(given)
    if unknown:
        options.parser.error(_unknown_arguments(unknown, options.parser))
    try:
        code = options.command(options)
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        code = 1
    except (ConfigError, StorageError, ValueError, ImportError, OSError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        code = 1
    _flush_output()
    sys.exit(code)


def _flush_output() -> None:
    """Lets go of what nobody reads any more: at its exit Python would complain of it."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program, description="Train neural networks by evolution strategies on volunteers' machines."
    )
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def verb(name: str, command: Command, description: str) -> argparse.ArgumentParser:
        # server.py and client.py are one verb each: their usage line does not repeat it.
        prog = None if program == "fedlearn" else program
        added = verbs.add_parser(name, help=description, description=description, prog=prog)
        added.set_defaults(command=command, parser=added)
        return added

    _add_serve(verb("serve", _serve, "start a run, or resume one, and the server for its volunteers"))
    _add_join(verb("join", _join, "lend this machine to a server"))
    _add_sample(verb("sample", inspect.sample_command, "let a checkpoint write text"))
    evaluate = verb("eval", inspect.eval_command, "bits per character of the newest checkpoint")
    _add_run(evaluate)
    evaluate.add_argument("--data", metavar="FILE", help="text to measure on (default: the run's validation split)")
    listing = verb("runs", inspect.runs_command, "list the runs, with configuration, steps, loss and age")
    _add_root(listing)
    replay = verb("replay", inspect.replay_command, "rebuild weights from genesis and journal, and compare digests")
    _add_run(replay)
    replay.add_argument("--step", type=int, metavar="N", help="steps to replay to (default: all)")
    return parser


def _unknown_arguments(unknown: Sequence[str], parser: argparse.ArgumentParser) -> str:
    flag = unknown[0].partition("=")[0]
    nearest = difflib.get_close_matches(flag, parser._option_string_actions, n=1)
    remedy = f"did you mean {nearest[0]}?" if nearest else "--help lists all flags"
    return f"expected a known flag, got {flag}; {remedy}"


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="TOML or JSON file with settings of the run")
    parser.add_argument("--resume", metavar="RUN", help="go on with a run: its number, its folder, or 'latest'")
    add_config_flags(parser)


def _add_join(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server",
        default=os.environ.get("FEDLEARN_SERVER", DEFAULT_SERVER),
        metavar="HOST:PORT",
        help=f"whom to join (default: $FEDLEARN_SERVER, else {DEFAULT_SERVER})",
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=os.environ.get("FEDLEARN_THREADS", "0"),
        metavar="N",
        help="threads; 0 = all cores (default: $FEDLEARN_THREADS, else 0)",
    )
    parser.add_argument(
        "--name",
        default=os.environ.get("FEDLEARN_NAME", platform.node()),
        metavar="TEXT",
        help="shown on the server's terminal (default: $FEDLEARN_NAME, else this machine's name)",
    )
    parser.add_argument("--once", action="store_true", help="do not come back when the connection is lost")


def _add_sample(parser: argparse.ArgumentParser) -> None:
    _add_run(parser)
    parser.add_argument("--prompt", default="", metavar="TEXT", help="text to go on from (default: a new document)")
    parser.add_argument("--length", type=int, default=200, metavar="N", help="tokens to write (default: 200)")
    parser.add_argument("--beams", type=int, metavar="N", help="beam search with N beams, in place of sampling")
    parser.add_argument(
        "--length-normalised", action="store_true", help="beam search by mean log-probability, in place of the total"
    )
    parser.add_argument(
        "--temperature", type=float, default=0.8, metavar="NUMBER", help="below 1 safer, 0 greedy (default: 0.8)"
    )
    parser.add_argument(
        "--top-k", type=int, default=0, metavar="N", help="choose among the N likeliest; 0 = all (default: 0)"
    )
    parser.add_argument(
        "--top-p",
        type=float,
        default=1.0,
        metavar="NUMBER",
        help="choose among the likeliest of this sum (default: 1)",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of the random choices (default: another each time)")


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="number of the run, its folder, or 'latest'")
    _add_root(parser)


def _add_root(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runs",
        default=os.environ.get("FEDLEARN_RUNS", DEFAULT_RUNS),
        metavar="FOLDER",
        help=f"where run folders are (default: $FEDLEARN_RUNS, else {DEFAULT_RUNS})",
    )


def _serve(options: argparse.Namespace) -> int:
    from fedlearn.app.serve import listen, serve
    from fedlearn.app.trainer import Trainer

    file = _read_config(options.config)
    with ExitStack() as held:
        if options.resume is None:
            config = load_config(file, os.environ, vars(options))
            # Before there is a folder: a run that can't be served must not become the latest.
            listening = held.enter_context(listen(config.host, config.port))
            chosen = run.create(config)
            held.enter_context(lock_run(chosen.folder))
        else:
            root = load_config(file, os.environ, vars(options)).runs
            saved = run.find(root, options.resume)
            config = resume_config(saved.config, file, os.environ, vars(options))
            chosen = msgspec.structs.replace(saved, config=config)
            held.enter_context(lock_run(chosen.folder))
            listening = held.enter_context(listen(config.host, config.port))
        trainer, notices = Trainer.open(chosen)
        held.callback(trainer.close)
        _introduce(chosen, trainer.replica.step, notices)
        return serve(trainer, listening)


def _introduce(chosen: run.Run, step: int, notices: list[str]) -> None:
    config: RunConfig = chosen.config
    print(
        f"run {chosen.folder.path.name} in {chosen.folder.path}: {chosen.objective.layout.size} parameters, "
        f"hidden_size {config.hidden_size}, n_layers {config.n_layers}, "
        f"{len(chosen.dataset.train.tokens)} tokens of {config.data}, population {config.population_limit}, "
        f"from step {step}"
    )
    for line in (*chosen.reasons, *notices):
        print(line)
    sys.stdout.flush()


def _read_config(path: str | None) -> SourceFile | None:
    if path is None:
        return None
    try:
        return path, Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: expected a readable TOML or JSON file: {error}") from error


def _join(options: argparse.Namespace) -> int:
    from fedlearn.app.join import join

    host, port = _address(options.server)
    if options.threads < 0:
        raise ValueError(f"--threads: expected 0 or more, got {options.threads}")
    return join(host, port, name=options.name[:64], threads=options.threads, once=options.once)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"--server: expected HOST:PORT, e.g. {DEFAULT_SERVER}, got {text!r}")
    return host.strip("[]"), int(port)
