import argparse
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from fedlearn.client.budget import Budget
from fedlearn.client.terms import Terms
from fedlearn.commands import join as module
from fedlearn.commands.join import add_join, join_command

FIT = "import fedlearn\ntask = fedlearn.function(lambda a: a['x'].sum(), {'x': [1.0]})\n"


@pytest.fixture
def join(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Stands in for the client."""
    join = Mock(return_value=7)
    monkeypatch.setattr(module, "join", join)
    return join


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_join(parser)
    return parser.parse_args(arguments)


def given(join: Mock) -> dict[str, Any]:
    """What the client was given by name."""
    join.assert_called_once()
    return dict(join.call_args.kwargs)


def test_client_is_given_what_the_flags_say(join: Mock) -> None:
    flags = ["--server", "far:12", "--name", "Ada", "--threads", "3", "--once", "--device", "cuda"]
    assert join_command(parsed(*flags)) == 7
    assert join.call_args.args == ("far", 12)
    assert given(join).items() >= {"name": "Ada", "threads": 3, "once": True, "task": None, "device": "cuda"}.items()


def test_client_comes_back_and_computes_on_the_processor_unless_told_otherwise(join: Mock) -> None:
    join_command(parsed("--name", "Ada"))
    assert (given(join)["once"], given(join)["device"]) == (False, "cpu")


def test_name_is_cut_to_what_a_message_holds(join: Mock) -> None:
    join_command(parsed("--name", "x" * 100))
    assert given(join)["name"] == "x" * 64


def test_task_is_the_one_that_is_named(join: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "fit.py").write_text(FIT)
    join_command(parsed("--task", f"{tmp_path / 'fit.py'}:task"))
    assert given(join)["task"].entry == f"{tmp_path / 'fit.py'}:task"


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--threads", "-1"], "--threads: expected 0 or more, got -1"),
        (["--server", "nowhere"], "--server: expected HOST:PORT"),
        (["--task", "missing.py:task"], "task: expected a file of Python, got 'missing.py'"),
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


def test_machine_is_lent_gently_unless_told_otherwise(join: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    small: list[object] = []
    monkeypatch.setattr(module, "give_way", lambda: small.append("give way"))
    monkeypatch.setattr(module, "limit_memory", lambda *given: small.append(given))
    monkeypatch.setattr(module, "keep_memory", lambda: small.append("keep memory"))
    monkeypatch.setattr(module, "free_bytes", lambda: 1000)
    join_command(parsed("--threads", "3"))
    assert given(join)["terms"] == Terms(max_cpu=1.0, only_when_idle=False, on_battery=False, hours=None)
    assert given(join)["budget"] == Budget(500)
    assert small == ["give way", "keep memory", (500, 3)]


def test_terms_are_those_of_the_flags(join: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "give_way", lambda: pytest.fail("told to stay as it is"))
    monkeypatch.setattr(module, "limit_memory", lambda *_: pytest.fail("memory of another device is not counted"))
    flags = ["--max-cpu", "30%", "--max-memory", "2GB", "--priority", "normal", "--only-when-idle"]
    join_command(parsed(*flags, "--on-battery", "yes", "--hours", "22-7", "--device", "cuda"))
    assert given(join)["terms"] == Terms(max_cpu=0.3, only_when_idle=True, on_battery=True, hours=(22 * 60, 7 * 60))
    assert given(join)["budget"] == Budget(2 * 10**9)


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
