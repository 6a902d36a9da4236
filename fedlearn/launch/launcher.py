"""A launcher: how many volunteers, for which server, with which resources, and where they are started."""

import math
from importlib import import_module
from pkgutil import iter_modules
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct

from fedlearn.client.lending.policy import parse_bytes

LENT = ("--priority", "normal", "--max-memory", "90%", "--on-battery", "yes")
"""Flags of every volunteer: a person who requests processors and memory of a cluster has already lent them."""

GIVE_UP_S = 300
"""Seconds without a server after which a volunteer gives up: after the run it would waste processors."""

_MIB = 2**20


def flag(metavar: str, description: str) -> Meta:
    """The annotation of a field that is a flag of `fedlearn launch`."""
    return Meta(description=description, extra={"metavar": metavar})


Memory = Annotated[str, flag("SIZE", "memory to reserve for each, such as 4GB")]


class Launcher(Struct, frozen=True, kw_only=True):
    """The order for volunteers that differ only in their names.

    A launcher derives from it, with its own flags as fields; the first line of its docstring is its help.
    """

    flags_of: ClassVar[Literal["join", "serve", ""]] = "join"
    """The verb that takes `flags`; empty where the launcher takes none."""

    count: Annotated[int, flag("N", "how many volunteers")]
    server: Annotated[str, flag("ADDRESS", "the server that they join")]
    cpus: Annotated[int, flag("N", "threads of each")] = 1
    flags: tuple[str, ...] = ()
    """More arguments; they come after those that are given here, and so count."""

    def launch(self) -> int:
        """Starts the volunteers or prints what does, and gives the exit code."""
        raise NotImplementedError  # each launcher has its own

    def join(self, *defaults: str) -> list[str]:
        """Arguments of `fedlearn`, without a name; never a token, which everybody on a machine could read."""
        usual = ("--threads", str(self.cpus), "--give-up", str(GIVE_UP_S))
        return ["join", "--server", self.server, *usual, *defaults, *self.flags]


def size_of(memory: str) -> int:
    """The memory in bytes; 0, which means as much as the cluster gives by default, where none is named.

    Raises:
        ValueError: the text is no size.
    """
    if "%" in memory:
        raise ValueError(f"--memory: expected a size such as 4GB, got {memory!r}")
    return parse_bytes(memory, 0) if memory else 0


def mib_of(memory: str) -> int:
    """The memory as schedulers count it, rounded up to MiB.

    Raises:
        ValueError: the text is no size.
    """
    return math.ceil(size_of(memory) / _MIB)


def launchers() -> dict[str, type[Launcher]]:
    """The launchers by their names: the one class that each module of `fedlearn.launch.launchers` derives."""
    room = "fedlearn.launch.launchers"
    for module in iter_modules(import_module(room).__path__, f"{room}."):
        import_module(module.name)
    found = {kind.__module__.removeprefix(f"{room}."): kind for kind in Launcher.__subclasses__()}
    return dict(sorted(found.items()))
