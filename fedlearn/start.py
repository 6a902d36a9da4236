"""The start of `server.py` and `client.py`: it needs nothing but Python, and names what to install where that is
missing."""

import sys


def start(verb: str, program: str) -> None:
    """Runs one verb with the arguments of this process."""
    try:
        from fedlearn.commands.command_line import main

        main([verb, *sys.argv[1:]], program=program)
    except KeyboardInterrupt:  # while still importing
        sys.exit(130)
    except ModuleNotFoundError as error:
        sys.exit(
            f"{program}: expected fedlearn to be installed for {sys.executable}, {error.name} is missing; install it "
            f"beside {program}: python3 -m venv .venv && .venv/bin/pip install -e ., then: .venv/bin/python {program}"
        )
