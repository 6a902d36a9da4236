"""The command that starts a server and its volunteers as one gang, for people who start everything with torchrun."""

import shlex
from typing import Annotated, ClassVar, Literal, final

from fedlearn.launch.launcher import Launcher, flag
from fedlearn.net.address import parse_address

_RESTARTS = 3


@final
class Torchrun(Launcher, frozen=True, kw_only=True):
    """Prints the line that starts a server with its volunteers."""

    flags_of: ClassVar[Literal["join", "serve", ""]] = "serve"

    task: Annotated[str, flag("FILE.py:NAME", "the task that the server trains")]

    def launch(self) -> int:
        print(torchrun_line(self))
        return 0


def torchrun_line(order: Torchrun) -> str:
    """The command for one machine: rank 0 is the server, on the port of the order's address, the others volunteers."""
    address = parse_address(order.server)
    line = ["torchrun", "--nproc-per-node", str(order.count + 1), "--max-restarts", str(_RESTARTS)]
    return shlex.join([*line, "-m", "fedlearn", "rank", order.task, "--port", str(address.port), *order.flags])
