"""`fedlearn board`: a page that shows the runs."""

import argparse
import errno
import ipaddress
from pathlib import Path

from fedlearn.commands.arguments import add_root, port
from fedlearn.config import ServerSettings

DEFAULT_PORT = ServerSettings().board
DEFAULT_HOST = "127.0.0.1"


def add_board(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `fedlearn board`."""
    add_root(parser)
    add_page(parser, DEFAULT_PORT, "address to listen on; 0.0.0.0 = all networks, without encryption")
    parser.add_argument(
        "--public-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name of this board, such as board.example.org, besides its addresses; may be repeated",
    )
    parser.add_argument("--companion", action="store_true", help=argparse.SUPPRESS)  # ends with its standard input


def add_page(parser: argparse.ArgumentParser, default_port: int, host_help: str) -> None:
    """Adds the port and the address of a page, and the proxies that it trusts to name the client behind a request."""
    parser.add_argument(
        "--port", type=port, default=default_port, metavar="N", help=f"TCP port; 0 = any (default: {default_port})"
    )
    parser.add_argument(
        "--host", default=DEFAULT_HOST, metavar="ADDRESS", help=f"{host_help} (default: {DEFAULT_HOST})"
    )
    parser.add_argument(
        "--trust-proxy",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="address or network of a reverse proxy, which is believed who asked (X-Forwarded-For); may be repeated",
    )


def board_command(options: argparse.Namespace) -> int:
    """`fedlearn board`: serves the page until it is stopped."""
    try:
        from fedlearn.board.serving import Reach, serve
        from fedlearn.web.names import checked_name
    except ModuleNotFoundError as error:
        raise ImportError(
            f"board: expected its packages, {error.name} is missing; install them: pip install 'fedlearn[board]'"
        ) from error
    root = Path(options.runs)
    if not root.is_dir():
        raise ValueError(f"--runs: expected an existing folder of runs, got {options.runs}; name it with --runs")
    reach = Reach(
        host=options.host,
        port=options.port,
        public_hosts=tuple(map(checked_name, options.public_host)),
        proxies=tuple(map(checked_network, options.trust_proxy)),
    )
    try:
        return serve(root, reach, is_companion=options.companion)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        if options.companion:
            print(
                f"board: port {options.port} is in use, usually by another server's board; it shows this run, too, if "
                "both servers keep their runs in one folder; otherwise choose another port with --board",
                flush=True,
            )
            return 0
        raise ValueError(
            f"board: expected a free port, but {options.port} is in use, maybe by another board; choose one with --port"
        ) from error


def checked_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """An address or a network.

    Raises:
        ValueError: the text is something else.
    """
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"--trust-proxy: expected an address or a network such as 10.0.0.0/8, got {text!r}") from error
