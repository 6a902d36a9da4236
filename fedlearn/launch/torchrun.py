"""The command that starts a server and its volunteers as one gang, for people who start everything with torchrun."""

import shlex

from fedlearn.launch.spec import LaunchSpec
from fedlearn.net.address import parse_address

_RESTARTS = 3


def torchrun_line(order: LaunchSpec, task: str) -> str:
    """The command for one machine: rank 0 is the server, on the port of the order's address, the others volunteers."""
    address = parse_address(order.server)
    line = ["torchrun", "--nproc-per-node", str(order.count + 1), "--max-restarts", str(_RESTARTS)]
    return shlex.join([*line, "-m", "fedlearn", "rank", task, "--port", str(address.port), *order.flags])
