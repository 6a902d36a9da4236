"""`fedlearn join`: lend this machine to a server."""

import argparse
import math
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any, get_args

from fedlearn.client.client import join
from fedlearn.client.ending import end, end_soon, end_with_input
from fedlearn.client.hub_line import HubLine, hub_url
from fedlearn.client.hub_worker import HubWorker
from fedlearn.client.lending.budget import MemoryBudget
from fedlearn.client.lending.machine import free_bytes, limit_memory, total_bytes
from fedlearn.client.lending.policy import LendingPolicy, parse_bytes, parse_hours, parse_share
from fedlearn.client.verbs import LIMIT_S, Verbs
from fedlearn.commands.arguments import add_identity, add_server, addresses_of, check_device, checked_name
from fedlearn.commands.output import add_output, terminal_of
from fedlearn.coordination.golden import check_core
from fedlearn.net.direct import parse_place
from fedlearn.storage.credentials import own_identity, read_token, token_exposure
from fedlearn.storage.task_file import load_task
from fedlearn.system.processes import CAN_PASS_DESCRIPTORS, give_way, keep_memory
from fedlearn.system.waiting import WaitingProcess
from fedlearn.tasks.task import Device
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.terminal import Terminal
from fedlearn.wire.proof import Credentials


def add_join(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `fedlearn join`."""
    add_server(parser)
    add_identity(parser)
    parser.add_argument(
        "--token-file",
        "--token",
        default="",
        metavar="FILE",
        help="file with the token that the server asks for; the variable FEDLEARN_TOKEN may hold the token itself",
    )
    parser.add_argument(
        "--task",
        metavar="FILE.py:NAME",
        help="your copy of the task that the server trains, if its code does not travel",
    )
    parser.add_argument(
        "--device",
        choices=get_args(Device),
        default="cpu",
        help="where the trials of PyTorch models run (default: cpu)",
    )
    parser.add_argument(
        "--hub", "--api-url", metavar="URL", help="ask this hub which server to join, one after another"
    )
    parser.add_argument(
        "--job", "--job-id", type=int, metavar="N", help="with --hub: work for this job only, and leave when it ends"
    )
    parser.add_argument(
        "--port", type=int, metavar="N", help="with --hub: the number of this device there; nobody connects to it"
    )
    parser.add_argument(
        "--verbs",
        metavar="FOLDER",
        help="with --hub: executables of yours in this folder may be called by the hub's operator, by name, with "
        "arguments as JSON on standard input",
    )
    parser.add_argument(
        "--share-log",
        action="store_true",
        help="with --hub: let its operator read what this device says of its work",
    )
    parser.add_argument(
        "--verb-limit",
        type=float,
        default=LIMIT_S,
        metavar="SECONDS",
        help=f"most time of a verb (default: {LIMIT_S:g})",
    )
    parser.add_argument(
        "--direct",
        nargs="?",
        const="",
        metavar="[HOST:]PORT",
        help="where a server with --direct divides its model: listen here for the neighbour that it names, on any free "
        "port by default, and call the next one, so that activations need not go through the server",
    )
    comfort = parser.add_argument_group("limits that the owner sets")
    comfort.add_argument(
        "--max-cpu",
        default="100%",
        metavar="SHARE",
        help="most processor time, as a share of all cores (default: 100%%)",
    )
    comfort.add_argument(
        "--max-memory",
        default="50%",
        metavar="SIZE",
        help="most memory for what a server asks to hold, such as 4GB, or a share of the free memory (default: 50%%)",
    )
    comfort.add_argument(
        "--priority", choices=("low", "normal"), default="low", help="low: every other process goes first (default)"
    )
    comfort.add_argument(
        "--only-when-idle", action="store_true", help="pause while other processes need the processors"
    )
    comfort.add_argument(
        "--on-battery", choices=("yes", "no"), default="no", help="whether to work on battery (default: no)"
    )
    comfort.add_argument(
        "--hours",
        metavar="FROM-TO",
        help="work only at these hours of local time, e.g. 22-7 or 22:30-6:45 (default: always)",
    )
    parser.add_argument("--companion", action="store_true", help=argparse.SUPPRESS)  # ends with its standard input
    parser.add_argument(
        "--once", action="store_true", help="do not come back when the connection is lost, nor wait for a server or hub"
    )
    parser.add_argument(
        "--give-up",
        type=float,
        default=math.inf,
        metavar="SECONDS",
        help="leave when no server, or hub, has answered for so long, exit code 3 if none ever did (default: never)",
    )
    add_output(parser)


def join_command(options: argparse.Namespace) -> int:
    """Volunteers until the run ends; gives the exit code."""
    if options.hub:
        return _ask_hub(options)
    if options.companion:
        end_with_input()
    for flag in ("job", "port", "verbs"):
        if (given := getattr(options, flag)) is not None and options.hub is None:
            raise ValueError(f"--{flag}: expected --hub with it, got {given} alone; name the hub")
    address, *others = addresses_of(options)
    name = checked_name(options.name)
    if options.threads < 0:
        raise ValueError(f"--threads: expected 0 or more, got {options.threads}")
    terminal = terminal_of(options)
    task, missing = _load(options.task)
    if missing:
        terminal.warn(missing)
    check_device(options.device)
    token = read_token(options.token_file, os.environ)
    identity, notice, _ = own_identity(options.identity, os.environ)
    for text in (token_exposure(options.token_file), notice):
        if text:
            print(text, flush=True)
    check_core()
    terms = LendingPolicy(
        max_cpu=parse_share(options.max_cpu),
        only_when_idle=options.only_when_idle,
        on_battery=options.on_battery == "yes",
        hours=parse_hours(options.hours) if options.hours else None,
    )
    lent = parse_bytes(options.max_memory, free_bytes())
    # A server that is told of memory which is not there would seat a part of a model here that does not fit.
    budget = MemoryBudget(min(lent, total_bytes()) if options.device == "cpu" else lent)
    if options.priority == "low":
        give_way()
    keep_memory()
    if options.device == "cpu":
        limit_memory(budget.max_bytes, options.threads)
    code = join(
        address,
        Credentials(identity, token),
        name=name,
        threads=options.threads,
        once=options.once or bool(missing),
        give_up_s=options.give_up,
        task=task,
        missing=missing,
        device=options.device,
        terms=terms,
        budget=budget,
        direct=parse_place(options.direct) if options.direct is not None else None,
        others=others,
        on_leave=end_soon,
        terminal=terminal,
    )
    return end(code)


def _load(entry: str | None) -> tuple[NamedTask | None, str]:
    """The task of a file, and which package it lacks here: the server is told, since others may lack it as well."""
    try:
        return load_task(entry) if entry else None, ""
    except ModuleNotFoundError as error:
        return None, str(error)


def _ask_hub(options: argparse.Namespace) -> int:
    """Volunteers for whatever the hub names, each time in a process of its own; gives the exit code."""
    if options.address or options.server:
        raise ValueError("--hub: expected no server's address with it, got one; the hub names the server")
    name, token = checked_name(options.name), read_token(options.token_file, os.environ)

    verbs = None
    if options.verbs is not None:
        if not CAN_PASS_DESCRIPTORS:
            raise ValueError("--verbs: expected Linux or macOS, got Windows; leave it out there")
        verbs = Verbs(Path(options.verbs), limit_s=options.verb_limit)

    def arguments(server: str) -> Sequence[str]:
        # An empty hub is none; what stands last counts.
        return [*options.given, "--hub", "", "--once", "--companion", "--server", server]

    line, terminal = HubLine(hub_url(options.hub), token), Terminal(plain=True, quiet=options.quiet)
    pipes: dict[str, Any] = {"stdout": PIPE, "stderr": STDOUT} if options.share_log else {}
    prepare = partial(WaitingProcess.start, "join", options.priority, **pipes)
    return HubWorker(
        line,
        name=name,
        job_id=options.job,
        port=options.port or 0,
        arguments=arguments,
        prepare=prepare,
        terminal=terminal,
        verbs=verbs,
        shares_log=options.share_log,
        give_up_s=0.0 if options.once else options.give_up,
    ).run()
