"""`fedlearn relay`: stand between volunteers and their server."""

import argparse
import asyncio
import os
import sys

from fedlearn.client.lending.budget import MemoryBudget
from fedlearn.client.lending.machine import free_bytes
from fedlearn.client.lending.policy import parse_bytes
from fedlearn.client.volunteer import VolunteerReplica
from fedlearn.commands.arguments import add_identity, add_server, addresses_of, checked_name
from fedlearn.commands.output import add_output, terminal_of
from fedlearn.config import Schema, add_config_flags, load_config
from fedlearn.relay.keeper import RelaySettings
from fedlearn.relay.process import RelayProcess
from fedlearn.server.security import open_security
from fedlearn.storage.credentials import identity_file, own_identity, read_token
from fedlearn.storage.task_file import load_task
from fedlearn.tasks.registry import find_kind
from fedlearn.wire.proof import Credentials


def add_relay(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `fedlearn relay`."""
    add_server(parser)
    add_identity(parser)
    parser.add_argument(
        "--token", dest="token_file", default=argparse.SUPPRESS, metavar="FILE", help="the same as --token-file"
    )
    parser.add_argument(
        "--task",
        metavar="FILE.py:NAME",
        help="your copy of the task that the server trains, if its code does not travel",
    )
    parser.add_argument(
        "--max-memory",
        default="50%",
        metavar="SIZE",
        help="most memory for what the server asks to hold, such as 4GB, or a share of the free memory (default: 50%%)",
    )
    add_config_flags(parser, Schema(find_kind("rnn").options), groups=["server"])
    add_output(parser)


def relay_command(options: argparse.Namespace) -> int:
    """Relays until the run ends; gives the exit code."""
    above = addresses_of(options)
    if options.threads < 0:
        raise ValueError(f"--threads: expected 0 or more, got {options.threads}")
    gate_flags = Schema(find_kind("rnn").options).groups["server"].__struct_fields__
    given = {key: value for key, value in vars(options).items() if key in gate_flags}
    settings = load_config(Schema(find_kind("rnn").options), None, {}, given).server
    # Volunteers who lose the relay go to the server behind it: one token opens both.
    token = read_token(settings.token_file, os.environ)
    security = open_security(settings, identity_file(os.environ).parent, os.environ)
    identity, notice, _ = own_identity(options.identity, os.environ)
    if notice:
        print(notice, flush=True)
    task = load_task(options.task) if options.task else None
    budget = MemoryBudget(parse_bytes(options.max_memory, free_bytes()))
    volunteer = VolunteerReplica(options.threads, task=task, budget=budget)
    terminal = terminal_of(options)
    chosen = RelaySettings(tuple(above), audit=settings.audit, entry=task.entry if task is not None else "")
    name = checked_name(options.name)

    async def main() -> int:
        process = RelayProcess(
            volunteer,
            Credentials(identity, token),
            security,
            chosen,
            name=name,
            threads=max(options.threads, 1),
            terminal=terminal,
            budget=budget,
        )
        return await process.run()

    try:
        return asyncio.run(main())
    finally:
        terminal.close()
        sys.stdout.flush()
