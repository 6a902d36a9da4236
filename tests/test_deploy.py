"""What stands in deploy/ is understood by those for whom it is written, as far as they are here."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedlearn.commands.command_line import _parser
from fedlearn.config import Schema, given_settings
from fedlearn.net.address import is_loopback, parse_address
from fedlearn.tasks.rnn.options import RnnOptions

DEPLOY = Path(__file__).parents[1] / "deploy"
AGENT = DEPLOY / "agent"
UNITS = sorted(DEPLOY.glob("*.service"))


def arguments_in(path: Path) -> list[list[str]]:
    """Of fedlearn, as a file gives them."""
    text = path.read_text()
    lists = re.findall(r"^(?:CMD|\s*command:) (\[.*\])$", text, re.MULTILINE)
    lines = re.findall(r"^ExecStart=\S*/fedlearn (.*)$", text, re.MULTILINE)
    return [*(json.loads(found) for found in lists), *(line.split() for line in lines)]


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(DEPLOY.rglob("*")) if path.is_file()],
    ids=lambda p: p.relative_to(DEPLOY).as_posix(),
)
def test_verbs_and_flags_are_those_that_there_are(path: Path) -> None:
    found = arguments_in(path)
    assert found, "nothing of fedlearn is started"
    for arguments in found:
        _, unknown = _parser("fedlearn").parse_known_args(arguments)
        assert unknown == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_unit_is_understood_by_systemd(unit: Path, tmp_path: Path) -> None:
    installed = unit.read_text().replace("%h/.local/share/fedlearn/bin/fedlearn", sys.executable)
    (tmp_path / unit.name).write_text(installed)
    command = ["systemd-analyze", "verify", str(tmp_path / unit.name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if unit.name in line] == []


GUIDE = DEPLOY.parent / "docs" / "deploy.md"
FILLED_IN = {"HOST": "h", "PORT": "1", "RUN": "1", "FINGERPRINT": "A" * 24}
NAMES_SERVERS = [GUIDE, DEPLOY / "compose.yaml", DEPLOY / "fedlearn-join.service"]


@pytest.mark.parametrize("path", NAMES_SERVERS, ids=lambda p: p.name)
def test_volunteers_are_given_addresses_with_the_fingerprint_of_a_servers_own_certificate(path: Path) -> None:
    texts = re.findall(r"""(?:FEDLEARN_SERVER=|--server |server=)['"]?([^\s'",]+)""", path.read_text())
    assert texts
    for text in texts:
        address = parse_address(re.sub(r"[A-Z]+", lambda found: FILLED_IN[found[0]], text))
        assert address.fingerprint or is_loopback(address.host), text


def test_volunteer_in_a_container_finds_the_server_by_the_name_that_the_server_prints() -> None:
    services = services_of(DEPLOY / "compose.yaml")
    (name,) = re.findall(r"--public-host\$\{FEDLEARN_PUBLIC_HOST:-(\w+)\}", "".join(services["serve"]["command"]))
    assert name in services
    # No address is right for every server: without the one that is printed, it says what it expects.
    (server,) = re.findall(r"--server(\S+?)--", "".join(services["join"]["command"]))
    assert server == "${FEDLEARN_SERVER:-}"


def test_image_is_not_run_by_root() -> None:
    assert re.search(r"^USER fedlearn$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)


def test_server_of_the_image_takes_its_environment() -> None:
    (line,) = re.findall(r"^ENV (.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    environ = dict(word.split("=", 1) for word in line.split())
    assert given_settings(Schema(RnnOptions), None, environ, {}) == {
        "runs": ("/runs", "environment variable FEDLEARN_RUNS")
    }


@pytest.mark.parametrize("folder", [DEPLOY, AGENT], ids=lambda p: p.name)
def test_image_is_built_with_arguments_that_it_has_and_extras_that_there_are(folder: Path) -> None:
    known = re.findall(r"^ARG (\w+)=", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    extras = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for service in services_of(folder / "compose.yaml").values():
        for name, value in service.get("build", {}).get("args", {}).items():
            assert name in known
            assert value.strip("[]") in extras


def services_of(path: Path) -> dict[str, dict[str, Any]]:
    yaml = pytest.importorskip("yaml")
    found: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text())["services"]
    return found


@pytest.mark.parametrize("folder", [DEPLOY, AGENT], ids=lambda p: p.name)
def test_containers_can_write_only_where_they_must_and_have_limits(folder: Path) -> None:
    for service in services_of(folder / "compose.yaml").values():
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert {"cpus", "mem_limit", "pids_limit"} <= set(service)
        if "build" in service:
            assert (folder / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


def test_hub_and_device_of_the_agent_need_tokens_and_meet_on_open_ports() -> None:
    services = services_of(AGENT / "compose.yaml")
    hub, device = (_parser("fedlearn").parse_args(services[name]["command"]) for name in ("hub", "device"))
    assert (hub.tokens, hub.host) == ("always", "0.0.0.0")
    assert services["hub"]["ports"] == [f"{hub.port}:{hub.port}", f"{hub.job_ports}:{hub.job_ports}"]
    assert device.hub == f"http://{hub.public_host}:{hub.port}"
    assert "FEDLEARN_TOKEN" in services["device"]["environment"]
    folder = re.search(r"FEDLEARN_HUB=(\S+)", (DEPLOY / "Dockerfile").read_text())
    assert folder is not None
    assert services["hub"]["volumes"] == [f"hub:{folder[1]}"]
