"""The hub's process from its first line to its last."""

import asyncio
import contextlib
import socket

import msgspec

from fedlearn.board.serving import Reach, page_address, server_of
from fedlearn.hub.app import Hub
from fedlearn.hub.settings import DEVICE_TOKEN_FILE, OPERATOR_TOKEN_FILE, HubSettings
from fedlearn.net.address import is_loopback
from fedlearn.storage.credentials import exposure
from fedlearn.storage.durable import StorageError
from fedlearn.system.files import lock_file
from fedlearn.system.invocation import invocation


def serve(settings: HubSettings, reach: Reach) -> int:
    """Serves until it is stopped.

    Raises:
        OSError: the port is in use.
        StorageError: another hub uses the folder.
    """
    with open(settings.folder / "lock", "a+") as lock:
        if not lock_file(lock.fileno()):
            raise StorageError(f"{settings.folder}: expected a folder that no hub uses; stop that one, or name another")
        family = socket.AF_INET6 if ":" in reach.host else socket.AF_INET
        with socket.create_server((reach.host, reach.port), family=family, backlog=512) as listening:
            port = listening.getsockname()[1]
            hub = Hub(settings, msgspec.structs.replace(reach.names(port), whose="hub"))
            for line in [*introduction(settings, port), *hub.jobs.problems]:
                print(line, flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                asyncio.run(server_of(hub.app(), listening, reach.proxies).serve(sockets=[listening]))
    return 0


def introduction(settings: HubSettings, port: int) -> list[str]:
    """The first lines, for people who start jobs and people who lend devices."""
    address = page_address(settings.host, port)
    join = invocation("join", is_elsewhere=not is_loopback(settings.host))
    lines = [
        f"hub: {address}",
        f"start and stop jobs in a browser: {address}jobs#token={settings.operator_token}",
        f"devices join with: {join} --hub {address.rstrip('/')}",
        f"texts and MNIST's files are looked for in {settings.data}, tasks in {settings.tasks}",
    ]
    if settings.is_open_on_loopback:
        lines.append("requests of this machine need no token; behind a proxy start it with --tokens always")
    if not is_loopback(settings.host):
        lines.append(
            f"others need the token in {settings.folder / OPERATOR_TOKEN_FILE}, devices that in "
            f"{settings.folder / DEVICE_TOKEN_FILE}; HTTP is not encrypted: put a proxy with a certificate before it"
        )
    tokens = [settings.folder / name for name in (OPERATOR_TOKEN_FILE, DEVICE_TOKEN_FILE)]
    warnings = [exposure(path, "hub", "act in its owner's name") for path in tokens]
    return lines + [warning for warning in warnings if warning]
