import errno
import socket
from typing import Any
from unittest.mock import Mock

import pytest

from fedlearn.config import ConfigError
from fedlearn.server.listening import listen
from tests.patience import LIMIT_S


def test_free_port_is_listened_on_where_none_is_given() -> None:
    with listen("127.0.0.1", 0) as listening:
        address = listening.getsockname()
        assert address[0] == "127.0.0.1"
        with socket.create_connection(address, timeout=LIMIT_S):
            pass


def test_name_stands_for_its_address_of_ipv4() -> None:
    with listen("localhost", 0) as listening:
        assert listening.family == socket.AF_INET


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_any_address_of_ipv6_takes_those_of_ipv4_too() -> None:
    try:
        listening = listen("::", 0)
    except ConfigError:
        pytest.skip("this machine has no IPv6")
    with listening, socket.create_connection(("127.0.0.1", listening.getsockname()[1]), timeout=LIMIT_S):
        pass


def test_port_of_a_run_that_just_ended_can_be_taken_again() -> None:
    with listen("127.0.0.1", 0) as listening:
        address = listening.getsockname()
        with socket.create_connection(address, timeout=LIMIT_S):
            peer, _ = listening.accept()
            peer.close()  # this side closes first, and its address rests for a while
    with listen(*address):
        pass


def test_taken_port_is_named() -> None:
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port: {port} is taken by another program; .* with --port"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_address_of_another_machine_is_named(host: str) -> None:
    with pytest.raises(ConfigError, match=f"host: expected an address of this machine, got '{host}', .*; set --host"):
        listen(host, 0)


def test_port_of_the_systems_own_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal: Any = Mock(side_effect=PermissionError(errno.EACCES, "Permission denied"))
    monkeypatch.setattr(socket, "create_server", refusal)
    with pytest.raises(ConfigError, match="port: 80 is for the system's own programs; choose another with --port"):
        listen("127.0.0.1", 80)
