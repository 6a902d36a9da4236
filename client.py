"""Lends this machine to a server: `python client.py --server HOST:PORT`, the same as `fedlearn join`."""

import sys

if __name__ == "__main__":
    try:
        from fedlearn.commands.command_line import main

        main(["join", *sys.argv[1:]], program="client.py")
    except KeyboardInterrupt:  # while still importing
        sys.exit(130)
