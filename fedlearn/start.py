"""The start of the `fedlearn` command, `server.py` and `client.py`: it needs nothing but Python, is quiet when it is
interrupted, and names what to install where that is missing."""

import sys
from collections.abc import Sequence


def command() -> None:
    """Runs the `fedlearn` command with the arguments of this process."""
    remedy = f"install it again, in the folder of its sources: {sys.executable} -m pip install ."
    _run(sys.argv[1:], program="fedlearn", remedy=remedy)


def start(verb: str, program: str) -> None:
    """Runs one verb with the arguments of this process, for a script beside the package."""
    remedy = f"install it beside {program}: python3 -m venv .venv && .venv/bin/pip install -e ., then: .venv/bin/python"
    _run([verb, *sys.argv[1:]], program=program, remedy=f"{remedy} {program}")


def _run(arguments: Sequence[str], *, program: str, remedy: str) -> None:
    try:
        from fedlearn.commands.command_line import main

        main(arguments, program=program)
    except KeyboardInterrupt:  # while still importing
        sys.exit(130)
    except ModuleNotFoundError as error:
        sys.exit(
            f"{program}: expected fedlearn to be installed for {sys.executable}, {error.name} is missing; {remedy}"
        )
