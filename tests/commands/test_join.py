import argparse
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

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
    assert given(join) == {"name": "Ada", "threads": 3, "once": True, "task": None, "device": "cuda"}


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
