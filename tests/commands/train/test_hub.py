import builtins
import socket
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from fedlearn.board.serving import Reach
from fedlearn.commands.command_line import _parser
from fedlearn.commands.train import hub as module
from fedlearn.commands.train.hub import hub_command


def called(*arguments: str) -> int:
    return hub_command(_parser("fedlearn").parse_args(["hub", *arguments]))


def test_it_listens_where_it_is_told_with_folders_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve = Mock(return_value=0)
    monkeypatch.setattr("fedlearn.hub.serving.serve", serve)
    monkeypatch.chdir(tmp_path)
    assert called() == 0
    settings, reach = serve.call_args.args
    assert (settings.folder, reach) == (Path("hub"), Reach(host="127.0.0.1", port=4000))
    assert (settings.data, settings.tasks, settings.is_open_on_loopback) == (Path("hub/data"), Path("hub/tasks"), True)
    monkeypatch.setenv("FEDLEARN_HUB", "other")
    flags = ["--port", "0", "--host", "0.0.0.0", "--public-host", "hub.example.org", "--tokens", "always"]
    called(*flags, "--data", str(tmp_path), "--trust-proxy", "10.0.0.0/8")
    settings, reach = serve.call_args.args
    assert (settings.folder, settings.data, settings.is_open_on_loopback) == (Path("other"), tmp_path, False)
    assert (reach.public_hosts, settings.public_host) == (("hub.example.org",), "hub.example.org")
    assert [str(network) for network in reach.proxies] == ["10.0.0.0/8"]


def test_ports_of_jobs_are_a_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve = Mock(return_value=0)
    monkeypatch.setattr("fedlearn.hub.serving.serve", serve)
    called("--folder", str(tmp_path), "--job-ports", "55600-55602")
    assert list(serve.call_args.args[0].job_ports) == [55600, 55601, 55602]


@pytest.mark.parametrize("text", ["55600", "0-5", "7-5", "65000-65536", "-5-7", "a-b", "1-999999999", "1-2-3"])
def test_what_is_no_range_of_ports_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match="--job-ports: expected two ports such as 55600-55699"):
        called("--folder", str(tmp_path), f"--job-ports={text}")


def test_a_port_in_use_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"expected a free port, but {port} is in use"):
            called("--folder", str(tmp_path), "--port", str(port))


def test_packages_that_are_missing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *rest: Any) -> Any:  # noqa: ANN401 (those of __import__)
        if name == "fedlearn.hub.serving":
            raise ModuleNotFoundError(name="uvicorn")
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"uvicorn is missing; install them: pip install 'fedlearn\[hub\]'"):
        called("--folder", str(tmp_path))


def test_a_system_that_passes_no_descriptors_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CAN_PASS_DESCRIPTORS", False)
    with pytest.raises(ValueError, match="expected Linux or macOS, got Windows"):
        called()
