"""Several hosts on one machine: network namespaces, each with an address of its own, and a switch between them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pytest

NETWORK = "10.77.0."


class Host(NamedTuple):
    """A namespace that has one line, `eth0`."""

    name: str
    address: str

    def __call__(self, *command: str) -> tuple[str, ...]:
        """The command that runs another one there."""
        return ("ip", "netns", "exec", self.name, *command)


def skip_without_namespaces() -> None:
    """Skips a module's tests where network namespaces can't be made."""
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need Linux, root and the command ip", allow_module_level=True)
    probe = f"fl{os.getpid()}-probe"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False).returncode:
        pytest.skip("this system makes no network namespaces", allow_module_level=True)
    _ip("netns", "delete", probe)


@contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """So many hosts that reach each other and nobody else."""
    switch = f"fl{os.getpid()}-switch"
    made = [Host(f"fl{os.getpid()}-{number}", f"{NETWORK}{number + 1}") for number in range(count)]
    try:
        _ip("netns", "add", switch)
        _inside(switch, "link", "add", "bridge", "type", "bridge")
        _inside(switch, "link", "set", "bridge", "up")
        for number, host in enumerate(made):
            _plug(host, switch, f"port{number}")
        yield made
    finally:
        for name in (switch, *(host.name for host in made)):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _plug(host: Host, switch: str, port: str) -> None:
    _ip("netns", "add", host.name)
    _ip("link", "add", "eth0", "netns", host.name, "type", "veth", "peer", "name", port, "netns", switch)
    _inside(switch, "link", "set", port, "master", "bridge", "up")
    _inside(host.name, "address", "add", f"{host.address}/24", "dev", "eth0")
    for line in ("lo", "eth0"):
        _inside(host.name, "link", "set", line, "up")


def _inside(name: str, *arguments: str) -> None:
    _ip("-n", name, *arguments)


def _ip(*arguments: str) -> None:
    command: Sequence[str] = ["ip", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
