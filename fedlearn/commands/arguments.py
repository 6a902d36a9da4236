"""Arguments that several verbs share."""

import argparse
import os
import platform

DEFAULT_SERVER = "127.0.0.1:55551"
DEFAULT_RUNS = "trainingRuns"


def add_run(parser: argparse.ArgumentParser) -> None:
    """The run that a verb looks at."""
    parser.add_argument("run", metavar="RUN", help="number of the run, its folder, or 'latest'")
    add_root(parser)


def add_root(parser: argparse.ArgumentParser) -> None:
    """Where runs are."""
    parser.add_argument(
        "--runs",
        default=os.environ.get("FEDLEARN_RUNS", DEFAULT_RUNS),
        metavar="FOLDER",
        help=f"where run folders are (default: $FEDLEARN_RUNS, else {DEFAULT_RUNS})",
    )


def add_server(parser: argparse.ArgumentParser) -> None:
    """The server that a machine is lent to, and what it is lent as."""
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


def parse_address(text: str) -> tuple[str, int]:
    """Host and port. Raises ValueError that shows the form."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"--server: expected HOST:PORT, e.g. {DEFAULT_SERVER}, got {text!r}")
    return host.strip("[]"), int(port)
