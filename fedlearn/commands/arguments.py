"""Arguments that several verbs share."""

import argparse
import os
import platform
import unicodedata
from typing import Literal

from fedlearn.net.address import Address, parse_address
from fedlearn.wire.messages import MAX_NAME_LENGTH

DEFAULT_SERVER = "127.0.0.1:55551"
DEFAULT_RUNS = "trainingRuns"
MAX_PORT = 65535


def add_run(parser: argparse.ArgumentParser) -> None:
    """Adds the run that a verb reads."""
    parser.add_argument("run", metavar="RUN", help="number of the run, its folder, or 'latest'")
    add_root(parser)


def add_task(parser: argparse._ActionsContainer, what: str) -> None:
    """The code of the run's task, which is never imported because a run's folder names it."""
    parser.add_argument(
        "--task", metavar="FILE.py:NAME", help=f"the file of the run's task, {what}; a run's folder alone runs no code"
    )


def add_step(parser: argparse.ArgumentParser) -> None:
    """The step whose weights a verb uses."""
    parser.add_argument(
        "--step",
        type=step_or_best,
        metavar="STEP",
        help="the step whose weights are used, or 'best': of those that the run looked at, the one with the greatest "
        "return or accuracy, else the least loss (default: the newest)",
    )


def step_or_best(text: str) -> int | Literal["best"]:
    """The step that a flag names.

    Raises:
        argparse.ArgumentTypeError: it is neither a number nor 'best'.
    """
    if text == "best":
        return "best"
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected the number of a step, or best, got {text!r}") from None


def add_root(parser: argparse.ArgumentParser) -> None:
    """Adds the folder of runs."""
    parser.add_argument(
        "--runs",
        default=os.environ.get("FEDLEARN_RUNS", DEFAULT_RUNS),
        metavar="FOLDER",
        help=f"where run folders are (default: $FEDLEARN_RUNS, else {DEFAULT_RUNS})",
    )


def add_server(parser: argparse.ArgumentParser) -> None:
    """The server that a machine is lent to, and what it is lent as."""
    parser.add_argument(
        "address",
        nargs="*",
        metavar="ADDRESS",
        help="the address in the line that the server prints; of several, each is tried when those before it fail",
    )
    parser.add_argument(
        "--server",
        nargs="+",
        metavar="ADDRESS",
        help=f"the server to join (default: $FEDLEARN_SERVER, else {DEFAULT_SERVER})",
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
        default=os.environ.get("FEDLEARN_NAME", _machine_name()),
        metavar="TEXT",
        help="shown on the server's terminal (default: $FEDLEARN_NAME, else this machine's name)",
    )


def port(text: str) -> int:
    """A TCP port, as argparse reads one.

    Raises:
        argparse.ArgumentTypeError: the text is none.
    """
    if not text.isdecimal() or int(text) > MAX_PORT:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to {MAX_PORT}, got {text!r}")
    return int(text)


def addresses_of(options: argparse.Namespace) -> list[Address]:
    """The servers to join, in order.

    Raises:
        ValueError: a text is no address.
    """
    if options.address and options.server:
        raise ValueError("server: expected addresses once, got them with and without --server; leave out --server")
    given = options.address or options.server or [os.environ.get("FEDLEARN_SERVER", DEFAULT_SERVER)]
    return [parse_address(text) for text in given]


def add_identity(parser: argparse.ArgumentParser) -> None:
    """Adds the key of this machine."""
    parser.add_argument(
        "--identity",
        default="",
        metavar="FILE",
        help="file with the key that servers know this machine by; made if it is not there "
        "(default: fedlearn/identity.pem in $XDG_CONFIG_HOME, else in ~/.config)",
    )


def checked_name(text: str) -> str:
    """A name that a message can carry.

    Raises:
        ValueError: the name cannot travel; the message says why.
    """
    problem = ""
    if len(text) > MAX_NAME_LENGTH:
        problem = f"at most {MAX_NAME_LENGTH} characters, got {len(text)}"
    elif not _is_utf8(text):
        problem = f"text in UTF-8, got {text!r}"
    elif any(unicodedata.category(character) == "Cc" for character in text):
        problem = f"no control characters, got {text!r}"
    if problem:
        raise ValueError(f"name: expected {problem}; choose another with --name")
    return text


def _machine_name() -> str:
    """The name of this machine, without characters that a message cannot carry."""
    text = platform.node().encode("utf-8", errors="replace").decode()
    return "".join(c for c in text if unicodedata.category(c) != "Cc")[:MAX_NAME_LENGTH]


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def check_device(device: str) -> None:
    """Checks that this machine's PyTorch can run trials there.

    Raises:
        ValueError: it cannot.
    """
    if device != "cpu":
        from fedlearn.tasks.torch import devices  # PyTorch takes seconds to import

        devices.use_device(device)
