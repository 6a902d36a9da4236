"""How a command writes: the flags, and what follows from them."""

import argparse

from fedlearn.terminal import Terminal
from fedlearn.terminal.bars import Bars


def add_output(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Adds the flags of plain and quiet output; gives their group, to which a verb may add."""
    output = parser.add_argument_group("output")
    output.add_argument("--plain", action="store_true", help="print plain lines, as where the output is no terminal")
    output.add_argument("--quiet", action="store_true", help="print only what goes wrong, and how it ends")
    return output


def bars_of(options: argparse.Namespace) -> Bars:
    """What shows progress of this command."""
    plain, quiet = _manner(options)
    return Bars(plain=plain, quiet=quiet)


def terminal_of(options: argparse.Namespace) -> Terminal:
    """What shows a run to whoever gave this command."""
    plain, quiet = _manner(options)
    return Terminal(plain=plain, quiet=quiet, verbose=getattr(options, "verbose", False))


def _manner(options: argparse.Namespace) -> tuple[bool, bool]:
    """The flags for plain and for quiet output, of which a verb may lack either."""
    return getattr(options, "plain", False), getattr(options, "quiet", False)
