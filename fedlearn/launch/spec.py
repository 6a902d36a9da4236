"""The description of a launch: how many volunteers, for which server, with which resources."""

import math

from msgspec import Struct

LENT = ("--priority", "normal", "--max-memory", "90%", "--on-battery", "yes")
"""Flags of every volunteer: a person who requests processors and memory of a cluster has already lent them."""

GIVE_UP_S = 300
"""Seconds without a server after which a volunteer gives up: after the run it would waste processors."""

_MIB = 2**20


class LaunchSpec(Struct, frozen=True, kw_only=True):
    """The order for volunteers that differ only in their names."""

    count: int
    server: str
    """The server's address as `fedlearn join --server` takes it."""
    cpus: int = 1
    memory_bytes: int = 0
    """The memory of each volunteer; 0: as much as the cluster gives by default."""
    flags: tuple[str, ...] = ()
    """More arguments of `fedlearn join`; they come before those that are given here."""

    def join(self, *defaults: str) -> list[str]:
        """Arguments of `fedlearn`, without a name; never a token, which everybody on a machine could read."""
        usual = ("--threads", str(self.cpus), "--give-up", str(GIVE_UP_S))
        return ["join", "--server", self.server, *usual, *defaults, *self.flags]

    @property
    def memory_mib(self) -> int:
        """The memory for each, as schedulers count it."""
        return math.ceil(self.memory_bytes / _MIB)
