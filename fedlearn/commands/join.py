"""`fedlearn join`: lend this machine to a server."""

import argparse
import os
from typing import get_args

from fedlearn.client.client import join
from fedlearn.commands.arguments import DEFAULT_SERVER, add_identity, add_server, checked_name
from fedlearn.net.address import parse_address
from fedlearn.storage.credentials import own_identity, read_token
from fedlearn.storage.task_file import load_task
from fedlearn.tasks.task import Device
from fedlearn.wire.proof import Credentials


def add_join(parser: argparse.ArgumentParser) -> None:
    """Whom to join, with what."""
    add_server(parser)
    add_identity(parser)
    parser.add_argument(
        "--token-file",
        "--token",
        default="",
        metavar="FILE",
        help="file with the token that the server asks for; or the variable FEDLEARN_TOKEN is the token itself",
    )
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
    if options.address is not None and options.server is not None:
        raise ValueError("server: expected one address, got two; leave out --server")
    address = parse_address(options.address or options.server or os.environ.get("FEDLEARN_SERVER", DEFAULT_SERVER))
    name = checked_name(options.name)
    if options.threads < 0:
        raise ValueError(f"--threads: expected 0 or more, got {options.threads}")
    task = load_task(options.task) if options.task else None
    token = read_token(options.token_file, os.environ)
    identity, notice = own_identity(options.identity, os.environ)
    if notice:
        print(notice, flush=True)
    return join(
        address,
        Credentials(identity, token),
        name=name,
        threads=options.threads,
        once=options.once,
        task=task,
        device=options.device,
    )
