"""What is launched: how many volunteers, for which server, with what."""

import math
import sys
from collections.abc import Sequence

from msgspec import Struct

LENT = ("--priority", "normal", "--max-memory", "90%", "--on-battery", "yes")
"""Whoever asks a cluster for processors and memory has lent them already."""

GIVE_UP_S = 300
"""Whoever begins when the run is over already, and its server gone, would hold processors for nothing."""

_MIB = 2**20


class Order(Struct, frozen=True, kw_only=True):
    """The same for each volunteer but for its name."""

    count: int
    server: str
    """Address, as `fedlearn join --server` takes it."""
    cpus: int = 1
    memory_bytes: int = 0
    """For each; 0: as much as the cluster gives by itself."""
    flags: tuple[str, ...] = ()
    """More of them for `fedlearn join`; they go before those that are given here."""

    def join(self, *defaults: str) -> list[str]:
        """Arguments of `fedlearn`, without a name; never a token, which everybody on a machine could read."""
        usual = ("--threads", str(self.cpus), "--give-up", str(GIVE_UP_S))
        return ["join", "--server", self.server, *usual, *defaults, *self.flags]

    @property
    def memory_mib(self) -> int:
        """The memory for each, as schedulers count it."""
        return math.ceil(self.memory_bytes / _MIB)


def program(arguments: Sequence[str]) -> list[str]:
    """A command line that calls `fedlearn` with this very Python."""
    return [sys.executable, "-m", "fedlearn", *arguments]
