"""`python -m fedlearn` is the `fedlearn` command."""

import sys

if not sys.flags.safe_path:
    # As in server.py, an installed package goes before sources in the working directory, whose package this may be.
    sys.path.append(sys.path.pop(0))
    del sys.modules["fedlearn"]

from fedlearn.start import command

command()
