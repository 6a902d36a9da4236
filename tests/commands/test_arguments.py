import argparse
import platform
from collections.abc import Callable

import pytest

from fedlearn.commands.arguments import (
    DEFAULT_RUNS,
    add_root,
    add_run,
    add_server,
    add_step,
    checked_name,
    step_or_best,
)
from fedlearn.commands.look.board import add_board
from fedlearn.commands.train.hub import add_hub


def test_name_and_threads_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("NAME", "Ada"), ("THREADS", "3")):
        monkeypatch.setenv(f"FEDLEARN_{name}", value)
    parser = argparse.ArgumentParser()
    add_server(parser)
    options = parser.parse_args([])
    assert (options.name, options.threads) == ("Ada", 3)
    options = parser.parse_args(["--name", "Bob", "--threads", "4"])
    assert (options.name, options.threads) == ("Bob", 4)


@pytest.mark.parametrize(("environ", "root"), [({}, DEFAULT_RUNS), ({"FEDLEARN_RUNS": "elsewhere"}, "elsewhere")])
def test_runs_are_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], root: str
) -> None:
    monkeypatch.delenv("FEDLEARN_RUNS", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    parser = argparse.ArgumentParser()
    add_root(parser)
    assert parser.parse_args([]).runs == root
    assert parser.parse_args(["--runs", "here"]).runs == "here"


@pytest.mark.parametrize(("flags", "expected"), [([], None), (["--step", "7"], 7), (["--step", "best"], "best")])
def test_a_step_is_a_number_or_the_best(flags: list[str], expected: int | str | None) -> None:
    parser = argparse.ArgumentParser()
    add_step(parser)
    assert parser.parse_args(flags).step == expected


def test_a_step_of_another_name_is_refused() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected the number of a step, or best, got 'last'"):
        step_or_best("last")


def test_verb_that_looks_at_a_run_is_told_which() -> None:
    parser = argparse.ArgumentParser()
    add_run(parser)
    assert parser.parse_args(["latest"]).run == "latest"


@pytest.mark.parametrize("name", ["Ada", "x" * 64, "Åsa ⚙", ""])
def test_name_that_a_message_can_carry_is_taken(name: str) -> None:
    assert checked_name(name) == name


@pytest.mark.parametrize("name", ["x" * 65, "Ad\udce9", "a\nb", "a\x9b1m", "a\x7f"])
def test_name_that_no_message_can_carry_is_told(name: str) -> None:
    with pytest.raises(ValueError, match=r"^name: expected .*; choose another with --name"):
        checked_name(name)


def test_machines_own_name_is_made_one_that_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "h\udce9\x07" + "o" * 90)
    monkeypatch.delenv("FEDLEARN_NAME", raising=False)
    parser = argparse.ArgumentParser()
    add_server(parser)
    name = parser.parse_args([]).name
    assert checked_name(name) == name == "h?" + "o" * 62


@pytest.mark.parametrize("verb", [add_board, add_hub])
def test_port_that_can_not_be_is_told(
    verb: Callable[[argparse.ArgumentParser], None], capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    verb(parser)
    assert parser.parse_args(["--port", "65535"]).port == 65535
    for text in ("65536", "-1", "web"):
        with pytest.raises(SystemExit):
            parser.parse_args([f"--port={text}"])
        assert f"expected a port from 0 to 65535, got '{text}'" in capsys.readouterr().err
