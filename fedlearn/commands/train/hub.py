"""`fedlearn hub`: jobs over HTTP."""

import argparse
import errno
import os
from pathlib import Path

from fedlearn.commands.arguments import MAX_PORT
from fedlearn.commands.look.board import add_page, checked_network
from fedlearn.system.processes import CAN_PASS_DESCRIPTORS

DEFAULT_PORT = 4000
DEFAULT_FOLDER = "hub"


def add_hub(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `fedlearn hub`."""
    parser.add_argument(
        "--folder",
        default=os.environ.get("FEDLEARN_HUB", DEFAULT_FOLDER),
        metavar="FOLDER",
        help=f"where jobs, runs and tokens are kept (default: $FEDLEARN_HUB, else {DEFAULT_FOLDER})",
    )
    parser.add_argument("--data", metavar="FOLDER", help="texts and MNIST's files for jobs (default: data in there)")
    parser.add_argument("--tasks", metavar="FOLDER", help="files of tasks that jobs may name (default: tasks in there)")
    add_page(parser, DEFAULT_PORT, "address that hub and jobs listen on; 0.0.0.0 = all networks")
    parser.add_argument(
        "--public-host", default="", metavar="NAME", help="this machine's name for devices, if it is not its own"
    )
    parser.add_argument(
        "--job-ports",
        default="",
        metavar="FIRST-LAST",
        help="ports for the jobs' servers, such as 55600-55699 (default: any free ones)",
    )
    parser.add_argument(
        "--tokens",
        choices=("auto", "always"),
        default="auto",
        help="auto: requests of this machine need none (default)",
    )


def hub_command(options: argparse.Namespace) -> int:
    """`fedlearn hub`: serves until it is stopped."""
    if not CAN_PASS_DESCRIPTORS:
        raise ValueError("hub: expected Linux or macOS, got Windows; start a server for each job by hand there")
    try:
        from fedlearn.board.serving import Reach
        from fedlearn.hub.serving import serve
        from fedlearn.hub.settings import HubSettings
        from fedlearn.web.names import checked_name
    except ModuleNotFoundError as error:
        raise ImportError(
            f"hub: expected its packages, {error.name} is missing; install them: pip install 'fedlearn[hub]'"
        ) from error
    settings = HubSettings.open(
        Path(options.folder),
        data=Path(options.data) if options.data else None,
        tasks=Path(options.tasks) if options.tasks else None,
        host=options.host,
        public_host=options.public_host,
        tokens=options.tokens,
        job_ports=_ports(options.job_ports),
    )
    reach = Reach(
        host=options.host,
        port=options.port,
        public_hosts=(checked_name(options.public_host),) if options.public_host else (),
        proxies=tuple(map(checked_network, options.trust_proxy)),
    )
    try:
        return serve(settings, reach)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise ValueError(
            f"hub: expected a free port, but {options.port} is in use, maybe by another hub; choose one with --port"
        ) from error


def _ports(text: str) -> range:
    if not text:
        return range(0)
    first, _, last = text.partition("-")
    if all(part.isascii() and part.isdecimal() and len(part) <= 5 for part in (first, last)):
        ports = range(int(first), int(last) + 1)
        if ports and ports[0] >= 1 and ports[-1] <= MAX_PORT:
            return ports
    raise ValueError(f"--job-ports: expected two ports such as 55600-55699, got {text!r}")
