"""One process of a gang that was started together, by torchrun or srun: rank 0 serves, all others join it.

Source: https://docs.pytorch.org/docs/stable/elastic/run.html, https://slurm.schedmd.com/srun.html
"""

import re
from collections.abc import Mapping
from typing import Self

from msgspec import Struct

from fedlearn.launch.launcher import GIVE_UP_S

_LOOPBACK = "127.0.0.1"


class GangRank(Struct, frozen=True):
    """The position of a process in its gang."""

    rank: int
    size: int
    n_local: int
    """The number of the gang's processes on this machine."""
    master: str
    """The machine of rank 0."""
    n_restarts: int = 0
    """Number of times that the gang was restarted."""

    @property
    def is_on_one_machine(self) -> bool:
        return self.n_local == self.size

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self:
        """The position of this process, which a launcher has left in the environment.

        Raises:
            ValueError: there is none.
        """
        if "RANK" in environ:
            size = _number(environ, "WORLD_SIZE", 1)
            return cls(
                _number(environ, "RANK", 0),
                size,
                _number(environ, "LOCAL_WORLD_SIZE", size),
                environ.get("MASTER_ADDR", _LOOPBACK),
                _number(environ, "TORCHELASTIC_RESTART_COUNT", 0),
            )
        if "SLURM_PROCID" in environ:
            size, n_nodes = _number(environ, "SLURM_NTASKS", 1), _number(environ, "SLURM_NNODES", 1)
            nodes = environ.get("SLURM_STEP_NODELIST", environ.get("SLURM_JOB_NODELIST", _LOOPBACK))
            return cls(
                _number(environ, "SLURM_PROCID", 0),
                size,
                size if n_nodes == 1 else -(-size // n_nodes),
                _first_of(nodes),
                _number(environ, "SLURM_RESTART_COUNT", 0),
            )
        raise ValueError(
            "rank: expected RANK or SLURM_PROCID in the environment, got neither; start it with "
            "torchrun -m fedlearn rank TASK, or with srun"
        )


def server_arguments(place: GangRank, task: str, port: int, flags: list[str], *, has_run: bool) -> list[str]:
    """The arguments of `fedlearn` for rank 0, which serves a task, after a restart of the gang with its run."""
    resumed = ["--resume", "latest"] if place.n_restarts and has_run else []
    # The gang's machines trust their network, as those that torchrun connects always did.
    host = [_LOOPBACK] if place.is_on_one_machine else ["0.0.0.0", "--tls", "off"]
    others = ["--volunteers", "0"] if place.size > 1 else []
    return ["serve", "--task", task, "--host", *host, "--port", str(port), *others, *resumed, *flags]


def volunteer_arguments(place: GangRank, task: str, port: int, *, threads: int) -> list[str]:
    """The arguments of `fedlearn` for any other rank, which joins rank 0."""
    server = f"{_LOOPBACK}:{port}" if place.is_on_one_machine else f"fedlearn+plain://{place.master}:{port}"
    named = ["--task", task] if ":" in task else []
    return [
        *("join", "--server", server, "--name", f"rank-{place.rank}", "--threads", str(threads)),
        *("--priority", "normal", "--give-up", str(GIVE_UP_S), *named),
    ]


def _number(environ: Mapping[str, str], key: str, default: int) -> int:
    text = environ.get(key, str(default))
    if not text.isdecimal():
        raise ValueError(f"rank: expected a number in the variable {key}, got {text!r}")
    return int(text)


def _first_of(nodes: str) -> str:
    """The first machine of a list of Slurm's, such as `node[03-07,12],other1`."""
    found = re.match(r"([^,\[]+)(?:\[([^,\]-]+))?", nodes)
    return found.group(1) + (found.group(2) or "") if found else nodes
