import argparse
import math
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from fedlearn.client.lending.budget import MemoryBudget
from fedlearn.client.lending.policy import LendingPolicy
from fedlearn.commands.join import join as module
from fedlearn.commands.join.join import add_join, join_command
from fedlearn.net.address import Address
from fedlearn.storage.credentials import load_identity

FIT = "import fedlearn\ntask = fedlearn.function(lambda a: a['x'].sum(), {'x': [1.0]})\n"


@pytest.fixture
def join(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Stands in for the client."""
    join = Mock(return_value=7)
    monkeypatch.setattr(module, "join", join)
    monkeypatch.setattr(module, "check_device", lambda _: None)  # this machine may have none but its processor
    return join


def test_a_device_that_is_not_here_is_refused_before_anybody_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(module, "join", lambda *_, **__: pytest.fail("the server was called"))
    with pytest.raises(ValueError, match="device: expected one that PyTorch"):
        join_command(parsed("--server", "far:12", "--device", "cuda"))


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_join(parser)
    return parser.parse_args(arguments)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person with a config folder of their own, and nothing else in the environment."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("FEDLEARN_TOKEN", "FEDLEARN_SERVER", "FEDLEARN_NAME"):
        monkeypatch.delenv(name, raising=False)


def given(join: Mock) -> dict[str, Any]:
    """What the client was given by name."""
    join.assert_called_once()
    return dict(join.call_args.kwargs)


def test_client_is_given_what_the_flags_say(join: Mock) -> None:
    flags = ["--server", "far:12", "--name", "Ada", "--threads", "3", "--once", "--device", "cuda"]
    assert join_command(parsed(*flags)) == 7
    assert join.call_args.args[0] == Address("far", 12, has_tls=True)
    assert given(join).items() >= {"name": "Ada", "threads": 3, "once": True, "task": None, "device": "cuda"}.items()


def test_client_comes_back_and_computes_on_the_processor_unless_told_otherwise(join: Mock) -> None:
    join_command(parsed("--name", "Ada"))
    assert (given(join)["once"], given(join)["device"]) == (False, "cpu")


def test_task_is_the_one_that_is_named(join: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "fit.py").write_text(FIT)
    join_command(parsed("--task", f"{tmp_path / 'fit.py'}:task"))
    assert given(join)["task"].entry == f"{tmp_path / 'fit.py'}:task"


def test_server_is_told_once_what_the_task_lacks_here(
    join: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "fit.py").write_text("import nowhere\n" + FIT)
    join_command(parsed("--task", f"{tmp_path / 'fit.py'}:task"))
    told = "fit.py: expected the module nowhere, which is missing; install it: pip install nowhere"
    assert given(join).items() >= {"task": None, "missing": told, "once": True}.items()
    assert told in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--threads", "-1"], "--threads: expected 0 or more, got -1"),
        (["--server", "nowhere"], "server: expected fedlearn://HOST:PORT/RUN#FINGERPRINT"),
        (["far:1", "--server", "near:2"], "server: expected addresses once"),
        (["--name", "x" * 65], "name: expected at most 64 characters, got 65; choose another with --name"),
        (["--name", "Ad\udce9"], r"name: expected text in UTF-8, got 'Ad\\udce9'; choose another with --name"),
        (["--name", "Ada\x1b[31m"], "name: expected no control characters, got "),
        (
            ["--token", "hunter2"],
            r"token: expected the name of a file that holds it, got one that can't be read \(No such",
        ),
        (["--task", "missing.py:task"], "task: expected a Python file, got 'missing.py'"),
    ],
)
def test_flag_that_makes_no_sense_is_named_before_anybody_is_called(
    join: Mock, flags: list[str], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        join_command(parsed(*flags))
    join.assert_not_called()


def test_device_is_one_that_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed("--device", "abacus")
    assert "choose from" in capsys.readouterr().err


def test_server_may_be_the_line_that_it_prints_or_stand_in_the_environment(
    join: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDLEARN_SERVER", "127.0.0.1:3")
    join_command(parsed())
    assert join.call_args.args[0] == Address("127.0.0.1", 3)
    join_command(parsed("fedlearn://far:1/7#" + "A" * 24))
    assert join.call_args.args[0] == Address("far", 1, True, "A" * 24, "7")


def test_machine_has_the_same_identity_each_time_unless_another_is_named(join: Mock, tmp_path: Path) -> None:
    keys = []
    for flags in ([], [], ["--identity", str(tmp_path / "other.pem")]):
        join_command(parsed(*flags))
        keys.append(join.call_args.args[1].identity.public_key)
    assert keys[0] == keys[1] != keys[2]
    assert keys[0] == load_identity(tmp_path / "config" / "fedlearn" / "identity.pem").public_key


@pytest.mark.usefixtures("join")
def test_home_that_can_not_be_written_gives_an_identity_for_this_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert join_command(parsed()) == 7
    assert "so this session has one of its own" in capsys.readouterr().out


def test_token_is_read_from_a_file_or_the_environment(
    join: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDLEARN_TOKEN", "from the environment")
    join_command(parsed())
    assert join.call_args.args[1].token == b"from the environment"
    (tmp_path / "token").write_text("from the file\n")
    for flag in ("--token", "--token-file"):
        join_command(parsed(flag, str(tmp_path / "token")))
        assert join.call_args.args[1].token == b"from the file"


@pytest.mark.skipif(sys.platform == "win32", reason="no modes of files")
@pytest.mark.usefixtures("join")
def test_token_that_others_can_read_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "token"
    path.write_text("open sesame")
    path.chmod(0o644)
    join_command(parsed("--token", str(path)))
    assert f"got {path}, which others on this machine can read" in capsys.readouterr().out


def test_no_message_shows_what_may_be_the_token_itself(join: Mock) -> None:
    with pytest.raises(ValueError, match="token: ") as caught:
        join_command(parsed("--token", "hunter2"))
    assert "hunter2" not in str(caught.value)
    join.assert_not_called()


def test_machine_is_lent_gently_unless_told_otherwise(join: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    small: list[object] = []
    monkeypatch.setattr(module, "give_way", lambda: small.append("give way"))
    monkeypatch.setattr(module, "limit_memory", lambda *given: small.append(given))
    monkeypatch.setattr(module, "keep_memory", lambda: small.append("keep memory"))
    monkeypatch.setattr(module, "free_bytes", lambda: 1000)
    join_command(parsed("--threads", "3"))
    assert given(join)["terms"] == LendingPolicy(max_cpu=1.0, only_when_idle=False, on_battery=False, hours=None)
    assert given(join)["budget"] == MemoryBudget(500)
    assert small == ["give way", "keep memory", (500, 3)]


def test_terms_are_those_of_the_flags(join: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "give_way", lambda: pytest.fail("told to stay as it is"))
    monkeypatch.setattr(module, "limit_memory", lambda *_: pytest.fail("memory of another device is not counted"))
    flags = ["--max-cpu", "30%", "--max-memory", "2GB", "--priority", "normal", "--only-when-idle"]
    join_command(parsed(*flags, "--on-battery", "yes", "--hours", "22-7", "--device", "cuda"))
    assert given(join)["terms"] == LendingPolicy(
        max_cpu=0.3, only_when_idle=True, on_battery=True, hours=(22 * 60, 7 * 60)
    )
    assert given(join)["budget"] == MemoryBudget(2 * 10**9)


@pytest.mark.parametrize(("device", "lent_gb"), [("cpu", 3), ("cuda", 9)])
def test_no_more_memory_is_lent_than_the_machine_has(
    join: Mock, monkeypatch: pytest.MonkeyPatch, device: str, lent_gb: int
) -> None:
    monkeypatch.setattr(module, "total_bytes", lambda: 3 * 10**9)  # of another device nothing is known here
    join_command(parsed("--max-memory", "9GB", "--device", device))
    assert given(join)["budget"] == MemoryBudget(lent_gb * 10**9)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--hours", "late"], "--hours: expected FROM-TO"),
        (["--max-cpu", "0"], "--max-cpu: expected a share"),
        (["--max-memory", "much"], "--max-memory: expected a size"),
    ],
)
def test_terms_that_make_no_sense_are_refused(join: Mock, flags: list[str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        join_command(parsed(*flags))
    join.assert_not_called()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Stands in for the device of a hub."""
    device = Mock()
    device.return_value.run.return_value = 7
    monkeypatch.setattr(module, "HubWorker", device)
    return device


def test_a_hub_names_the_server_and_what_it_names_is_joined_once(device: Mock, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("the devices' token")
    flags = ["--hub", "localhost", "--job", "3", "--name", "Ada", "--threads", "2", "--token", str(tmp_path / "token")]
    options = parsed(*flags)
    options.given = ["join", *flags]
    assert join_command(options) == 7
    named = device.call_args.kwargs
    assert (named["name"], named["job_id"], device.call_args.args[0].url) == ("Ada", 3, "http://localhost:4000")
    assert named["prepare"].args == ("join", "low")
    assert named["give_up_s"] == math.inf
    words = named["arguments"]("127.0.0.1:5001")
    assert "the devices' token" not in words
    assert words[0] == "join"
    volunteer = parsed(*words[1:])
    assert (volunteer.hub, volunteer.server, volunteer.once, volunteer.threads) == ("", ["127.0.0.1:5001"], True, 2)
    assert volunteer.companion


@pytest.mark.parametrize(("flags", "expected"), [(["--give-up", "60"], 60.0), (["--once"], 0.0)])
def test_a_hub_is_waited_for_as_a_server_is(device: Mock, flags: list[str], expected: float) -> None:
    assert join_command(parsed("--hub", "localhost", *flags)) == 7
    assert device.call_args.kwargs["give_up_s"] == expected


def test_what_a_hub_named_is_joined_as_any_server(join: Mock) -> None:
    assert join_command(parsed("--hub", "x", "--job", "1", "--hub", "", "--once", "--server", "far:12")) == 7
    assert join.call_args.args[0] == Address("far", 12, has_tls=True)


def test_flags_of_other_clients_mean_the_same(device: Mock) -> None:
    options = parsed("--api-url", "http://hub:4000", "--job-id", "3", "--port", "5001")
    options.given = []
    join_command(options)
    named = device.call_args.kwargs
    assert (device.call_args.args[0].url, named["job_id"], named["port"]) == ("http://hub:4000", 3, 5001)


def test_a_hub_and_a_server_are_not_both_joined(device: Mock) -> None:
    with pytest.raises(ValueError, match="--hub: expected no server's address"):
        join_command(parsed("--hub", "x", "--server", "far:12"))
    for flag in ("job", "port", "verbs"):
        with pytest.raises(ValueError, match=f"--{flag}: expected --hub with it, got 3 alone"):
            join_command(parsed(f"--{flag}", "3", "far:12"))
    device.assert_not_called()
