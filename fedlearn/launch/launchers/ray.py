"""Volunteers as actors of a Ray cluster, which starts them again wherever there is room when they or a machine die.

Source: https://docs.ray.io/en/latest/ray-core/fault_tolerance/actors.html
"""

import os
from typing import Annotated, Any, ClassVar, Literal, final

from fedlearn.client.client import join_lent
from fedlearn.launch.launcher import GIVE_UP_S, Launcher, Memory, flag, size_of
from fedlearn.net.address import parse_address
from fedlearn.storage.credentials import read_token
from fedlearn.storage.task_file import load_task

_MEMORY_SHARE = 0.9
_OBJECT_STORE_BYTES = 100_000_000
"""The bytes of the object store of a Ray that is started here; volunteers put nothing into it."""


@final
class Ray(Launcher, frozen=True, kw_only=True):
    """Starts volunteers as actors of a Ray cluster."""

    flags_of: ClassVar[Literal["join", "serve", ""]] = ""

    memory: Memory = ""
    task: Annotated[str, flag("FILE.py:NAME", "the task that the server trains")] = ""
    cluster: Annotated[str, flag("ADDRESS", "that of Ray; without it the one that it finds, else a new one")] = ""

    def launch(self) -> int:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody asked Ray to report this machine
        codes = ray(
            count=self.count,
            server=self.server,
            cpus=self.cpus,
            memory_bytes=size_of(self.memory),
            task=self.task or None,
            address=self.cluster or None,
        )
        return max(codes)


def ray(
    *,
    count: int,
    server: str,
    cpus: int = 1,
    memory_bytes: int = 0,
    task: str | None = None,
    address: str | None = None,
    token: str | None = None,
) -> list[int]:
    """Runs `count` volunteers until the server's run ends; gives their exit codes.

    `server` is the address in the line that the server prints, and must be one that all nodes reach. Each volunteer
    has `cpus` threads; `memory_bytes` is what Ray reserves for it, 0: nothing. `task` is FILE.py:NAME as every node
    finds it, where the task's code does not travel. `address` is that of a Ray cluster; without one it is the cluster
    that Ray finds, else a Ray of this machine alone, which ends with this process. `token` is the server's, if it asks
    for one: without it, that of FEDLEARN_TOKEN.

    Raises:
        ImportError: Ray is not installed.
        ValueError: the server's address or the token is none.
    """
    if count < 1:
        raise ValueError(f"count: expected at least one volunteer, got {count}")
    parse_address(server)
    secret = token.encode() if token is not None else read_token("", os.environ)
    cluster = _connected(address, count * cpus)
    actor = cluster.remote(num_cpus=cpus, memory=memory_bytes or None, max_restarts=-1, max_task_retries=-1)(
        VolunteerActor
    )
    actors = [actor.remote() for _ in range(count)]
    try:
        working = [
            each.work.remote(server, f"ray-{number}", cpus, count, task, secret) for number, each in enumerate(actors)
        ]
        codes: list[int] = cluster.get(working)
        return codes
    finally:
        for each in actors:
            cluster.kill(each)


class VolunteerActor:
    """An actor, which runs on a node of the cluster."""

    def work(self, server: str, name: str, threads: int, count: int, task: str | None, token: bytes) -> int:
        """Runs a volunteer until the run ends, and gives its exit code."""
        named = load_task(task) if task is not None else None
        # All of them may be on one node.
        return join_lent(
            server,
            name=name,
            threads=threads,
            share=_MEMORY_SHARE / count,
            give_up_s=GIVE_UP_S,
            task=named,
            token=token,
        )


def _connected(address: str | None, n_cpus: int) -> Any:  # noqa: ANN401 (Ray itself)
    """Ray, connected to a cluster."""
    try:
        import ray as cluster
    except ModuleNotFoundError as error:
        raise ImportError(
            f"ray: expected Ray, {error.name} is missing; install it: pip install 'fedlearn[ray]'"
        ) from error
    if cluster.is_initialized():
        return cluster
    try:
        cluster.init(address=address or "auto", log_to_driver=True)
    except ConnectionError:
        if address is not None:
            raise
        cluster.init(
            address="local",
            num_cpus=max(n_cpus, os.cpu_count() or 1),
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
        )
    return cluster
