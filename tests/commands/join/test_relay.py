import argparse
from pathlib import Path
from typing import Any, final

import pytest

from fedlearn.commands.join import relay as module
from fedlearn.commands.join.relay import add_relay, relay_command
from fedlearn.config import ConfigError
from fedlearn.net.address import Address
from fedlearn.relay.keeper import RelaySettings
from fedlearn.server.security import ServerSecurity
from fedlearn.wire.proof import Credentials


@final
class Process:
    """Stands in for the relay."""

    given: "tuple[Credentials, ServerSecurity, RelaySettings, dict[str, Any]]"

    def __init__(
        self,
        _: object,
        credentials: Credentials,
        security: ServerSecurity,
        settings: RelaySettings,
        **given: Any,  # noqa: ANN401
    ) -> None:
        Process.given = (credentials, security, settings, given)

    async def run(self) -> int:
        return 7


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("FEDLEARN_TOKEN", "FEDLEARN_SERVER", "FEDLEARN_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "RelayProcess", Process)


def relayed(*arguments: str) -> tuple[Credentials, ServerSecurity, RelaySettings, dict[str, Any]]:
    parser = argparse.ArgumentParser()
    add_relay(parser)
    assert relay_command(parser.parse_args(arguments)) == 7
    return Process.given


@pytest.mark.parametrize("flags", [["far:12", "near:13"], ["--server", "far:12", "near:13"]])
def test_servers_above_are_tried_in_order(flags: list[str]) -> None:
    _, _, settings, _ = relayed(*flags, "--name", "Ada")
    assert settings.above == (Address("far", 12, has_tls=True), Address("near", 13, has_tls=True))


def test_gate_is_a_servers() -> None:
    _, security, settings, given = relayed(
        "far:12", "--host", "0.0.0.0", "--port", "0", "--audit", "0.5", "--name", "Ada"
    )
    assert security.context is not None
    assert (security.settings.host, security.settings.port, settings.audit, given["name"]) == ("0.0.0.0", 0, 0.5, "Ada")


def test_one_token_opens_both_doors(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("open sesame open sesame")
    credentials, security, _, _ = relayed("far:12", "--token", str(tmp_path / "token"))
    assert credentials.token == security.rules.token == b"open sesame open sesame"


def test_a_setting_out_of_its_range_is_refused() -> None:
    with pytest.raises(ConfigError, match="audit"):
        relayed("far:12", "--audit", "2")
