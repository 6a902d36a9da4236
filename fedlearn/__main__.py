"""`python -m fedlearn` is the `fedlearn` command."""

from fedlearn.app.command_line import main

main()
