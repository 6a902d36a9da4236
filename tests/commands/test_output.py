import argparse
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

import pytest

from fedlearn.commands.look import sample as sample_module
from fedlearn.commands.look.sample import sample_command
from fedlearn.commands.output import add_output, bars_of, terminal_of
from fedlearn.runs.run import Run
from fedlearn.terminal.bars import Bar, Bars
from tests.commands.recorded_run import options_of
from tests.terminal.emulator import Emulator


@final
class Kept:
    """In place of Bars: keeps the last bar."""

    @contextmanager
    def bar(self, what: str, unit: str = "", *, total: float | None = None) -> Iterator[Bar]:
        self.last = Bar(what, unit, total)
        yield self.last


@pytest.mark.parametrize(("flags", "mode"), [([], "live"), (["--plain"], "plain"), (["--quiet"], "quiet")])
def test_flags_say_how_a_terminal_is_written_to(flags: list[str], mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Emulator())
    monkeypatch.setenv("TERM", "xterm")
    parser = argparse.ArgumentParser()
    add_output(parser)
    assert terminal_of(parser.parse_args(flags)).screen.mode == mode


def test_a_verb_without_the_flags_writes_by_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert terminal_of(argparse.Namespace()).screen.mode == "plain"
    assert isinstance(bars_of(argparse.Namespace()), Bars)


@pytest.mark.parametrize("beams", [None, 3])
def test_tokens_are_counted_as_they_are_written(run: Run, beams: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept()
    monkeypatch.setattr(sample_module, "bars_of", lambda _: kept)
    assert sample_command(options_of(run, beams=beams)) == 0
    assert kept.last.figures[0] == "20 of 20 tokens"
