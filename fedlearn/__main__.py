"""`python -m fedlearn` is the `fedlearn` command."""

import sys

try:
    from fedlearn.commands.command_line import main
except KeyboardInterrupt:
    sys.exit(130)

main()
