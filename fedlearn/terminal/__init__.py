"""What people at a terminal see: lines, a block that is renewed in place, bars; and figures in words."""

from fedlearn.terminal.figures import counted, format_count, format_duration, format_figures, format_share, format_step
from fedlearn.terminal.guards import escape, printable
from fedlearn.terminal.terminal import Terminal

__all__ = [
    "Terminal",
    "counted",
    "escape",
    "format_count",
    "format_duration",
    "format_figures",
    "format_share",
    "format_step",
    "printable",
]
