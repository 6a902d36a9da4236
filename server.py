"""Starts the server of a run: `python server.py [CONFIG] [flags]`, the same as `fedlearn serve`."""

import sys

from fedlearn.app.command_line import main

if __name__ == "__main__":
    main(["serve", *sys.argv[1:]], program="server.py")
