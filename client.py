"""Lends this machine to a server: `python client.py --server HOST:PORT`, the same as `fedlearn join`."""

import sys

from fedlearn.app.command_line import main

if __name__ == "__main__":
    main(["join", *sys.argv[1:]], program="client.py")
