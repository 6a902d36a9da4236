"""Seats as real processes that send to each other: equal to the bit, and what happens where they can't."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.crews import STEPS_BY_MEMBERS, digests_of_parts, write_task
from tests.end_to_end.processes import (
    ROOT,
    ended_at_exit,
    fedlearn,
    final_digest,
    metrics_of,
    output_of,
    start,
    wait_for,
)
from tests.faults.measures import until_more

pytest.importorskip("torch")

SEATS = 3
SERVE = ("--task", "task.py:task", "--port", "0", "--seats", str(SEATS), *STEPS_BY_MEMBERS)
LIMIT_S = 400.0
CLIENT = ("--once", "--priority", "normal", "--threads", "1", "--on-battery", "yes")


def traffic_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(fedlearn("traffic", "1", "--json", folder=folder))
    return found


def trained(folder: Path, *flags: str) -> list[str]:
    """The digests of a run with its own volunteers."""
    folder.mkdir()
    write_task(folder)
    server = start(
        "server.py", *SERVE, "--volunteers", str(SEATS), "--steps", "4", *flags, folder=folder, limit_s=LIMIT_S
    )
    with ended_at_exit(server):
        said = output_of(server).read()
        assert server.wait() == 0, said
    return [step["digest"] for step in metrics_of(folder)]


@pytest.mark.long
@pytest.mark.parametrize("tls", ["off", "on"])
def test_a_crew_takes_the_same_steps_whatever_way_activations_go(tmp_path: Path, tls: str) -> None:
    direct = trained(tmp_path / "direct", "--direct", "true", "--tls", tls)
    assert trained(tmp_path / "relayed", "--tls", tls) == direct
    bytes_of = {name: traffic_of(tmp_path / name) for name in ("direct", "relayed")}
    for cut in bytes_of["direct"]["cuts"].values():
        assert cut["direct"] == cut["bytes"] == cut["members"] * 64 * 2 * 8 * 4
    assert bytes_of["relayed"]["direct"] == 0
    received = {name: found["kinds"]["activations"]["received"] for name, found in bytes_of.items()}
    assert received["direct"] < received["relayed"] / 200
    print(f"tls {tls}: 4 steps with digest {direct[-1]}; the server received activations {received}")


@pytest.mark.long
def test_a_follower_that_dies_is_replaced_and_the_new_one_is_called(tmp_path: Path) -> None:
    write_task(tmp_path)
    server = start("server.py", *SERVE, "--volunteers", "0", "--direct", "true", folder=tmp_path, limit_s=LIMIT_S)
    with ExitStack() as ended:
        ended.enter_context(ended_at_exit(server))
        port, _ = wait_for(server, r"listening on 127\.0\.0\.1:(\d+)")

        def joined(name: str) -> "subprocess.Popen[str]":
            flags = ("--server", f"127.0.0.1:{port}", "--name", name, "--direct", "127.0.0.1:0", *CLIENT)
            client = start("client.py", *flags, folder=tmp_path, limit_s=LIMIT_S)
            ended.enter_context(ended_at_exit(client))
            return client

        clients = [joined(f"volunteer-{number}") for number in range(SEATS)]
        places = [int(wait_for(client, r"this machine holds part (\d) of 3")[0]) - 1 for client in clients]
        wait_for(clients[places.index(0)], "activations go straight to the next seat")
        clients.pop(places.index(1)).kill()
        clients.append(joined("newcomer"))  # who takes which seat now depends on how long it takes
        wait_for(server, r"crew \d+ .*newcomer.* joined")
        until_more(tmp_path, 3)
        server.send_signal(signal.SIGINT)
        digests = {final_digest(client) for client in clients}
        assert server.wait(timeout=LIMIT_S) == 0
    assert digests == set(digests_of_parts(tmp_path, seats=SEATS))
    found = traffic_of(tmp_path)
    relayed = found["kinds"]["activations"]["received"]
    assert relayed < found["direct"], "a step may go through the server before it hears of the death"
    print(f"{found['steps']} steps with three equal digests; {found['direct']} bytes directly, {relayed} to the server")


@pytest.mark.long
def test_who_listens_where_others_do_not_call_is_served_through_the_server(tmp_path: Path) -> None:
    write_task(tmp_path)
    server = start(
        "server.py", *SERVE, "--volunteers", "0", "--direct", "true", "--steps", "3", folder=tmp_path, limit_s=LIMIT_S
    )
    with ExitStack() as ended:
        ended.enter_context(ended_at_exit(server))
        port, _ = wait_for(server, r"listening on 127\.0\.0\.1:(\d+)")
        for number in range(SEATS):
            flags = ("--server", f"127.0.0.1:{port}", "--name", f"volunteer-{number}", "--direct", "127.0.0.2:0")
            ended.enter_context(ended_at_exit(start("client.py", *flags, *CLIENT, folder=tmp_path, limit_s=LIMIT_S)))
        said = output_of(server).read()
        assert server.wait() == 0
    assert "activations behind seat 1 go through this server from now on: the next seat is not reached: nobody" in said
    found = traffic_of(tmp_path)
    assert all(cut["bytes"] == cut["members"] * 64 * 2 * 8 * 4 for cut in found["cuts"].values())
    assert metrics_of(tmp_path)[-1]["members"] == 128
    print(f"3 steps through the server, {found['direct']} bytes directly")


# ---- two machines that reach the server and not each other

NETWORKS = ("10.213.77", "10.213.78")


@pytest.fixture
def namespaces() -> Iterator[list[str]]:
    """Two networks of one machine each, joined to this one; what one sends to the other is lost on its way back."""
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and `ip`")
    names = [f"fedlearn{os.getpid()}n{number}" for number in range(len(NETWORKS))]
    with ExitStack() as undone:
        for name, network, other in zip(names, NETWORKS, reversed(NETWORKS), strict=True):
            if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
                pytest.skip("network namespaces are not allowed here")
            undone.callback(subprocess.run, ["ip", "netns", "del", name], check=False)
            outside = f"fl{os.getpid() % 10**6}{network[-2:]}"
            ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("addr", "add", f"{network}.1/24", "dev", outside)
            ip("link", "set", outside, "up")
            ip("-n", name, "addr", "add", f"{network}.2/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "route", "add", "default", "via", f"{network}.1")
            ip("-n", name, "route", "add", "blackhole", f"{other}.0/24", "metric", "1")
        yield names


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.mark.long
def test_seats_that_reach_the_server_and_not_each_other_go_through_it(tmp_path: Path, namespaces: list[str]) -> None:
    write_task(tmp_path)
    flags = (*SERVE, "--seats", "2", "--host", "0.0.0.0", "--tls", "off", "--direct", "true", "--steps", "3")
    server = start("server.py", *flags, "--volunteers", "0", folder=tmp_path, limit_s=LIMIT_S)
    with ExitStack() as ended:
        ended.enter_context(ended_at_exit(server))
        port, _ = wait_for(server, r"listening on 0\.0\.0\.0:(\d+)")
        for name, network in zip(namespaces, NETWORKS, strict=True):
            where = f"fedlearn+plain://{network}.1:{port}"
            command = [sys.executable, str(ROOT / "client.py"), "--server", where, "--name", name, "--direct", *CLIENT]
            environ = os.environ | {"XDG_CONFIG_HOME": str(tmp_path / name)}
            client = subprocess.Popen(
                ["ip", "netns", "exec", name, *command],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=environ,
            )
            ended.enter_context(ended_at_exit(client))
        said = output_of(server).read()
        assert server.wait() == 0, said
    assert "activations behind seat 1 go through this server from now on: the next seat is not reached" in said
    (cut,) = traffic_of(tmp_path)["cuts"].values()
    assert cut["bytes"] > cut["direct"] == 0
    print(f"3 steps, {cut['bytes']} bytes through the server")
