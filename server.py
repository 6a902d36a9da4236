"""Starts the server of a run: `python server.py [CONFIG] [flags]`, the same as `fedlearn serve`."""

import sys

if __name__ == "__main__":
    try:
        from fedlearn.commands.command_line import main

        main(["serve", *sys.argv[1:]], program="server.py")
    except KeyboardInterrupt:  # while still importing
        sys.exit(130)
