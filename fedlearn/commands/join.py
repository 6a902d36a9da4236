"""`fedlearn join`: lend this machine to a server."""

import argparse
from typing import get_args

from fedlearn.client.client import join
from fedlearn.commands.arguments import add_server, parse_address
from fedlearn.storage.task_file import load_task
from fedlearn.tasks.task import Device


def add_join(parser: argparse.ArgumentParser) -> None:
    """Whom to join, with what."""
    add_server(parser)
    parser.add_argument(
        "--task", metavar="FILE.py:NAME", help="the task that the server trains, where its code does not travel"
    )
    parser.add_argument(
        "--device",
        choices=get_args(Device),
        default="cpu",
        help="where the trials of PyTorch models run (default: cpu)",
    )
    parser.add_argument("--once", action="store_true", help="do not come back when the connection is lost")


def join_command(options: argparse.Namespace) -> int:
    """Volunteers until the run ends; gives the exit code."""
    host, port = parse_address(options.server)
    if options.threads < 0:
        raise ValueError(f"--threads: expected 0 or more, got {options.threads}")
    task = load_task(options.task) if options.task else None
    return join(
        host,
        port,
        name=options.name[:64],
        threads=options.threads,
        once=options.once,
        task=task,
        device=options.device,
    )
