"""Lines, as where the output is no terminal."""

import io
from typing import Any

import msgspec
import pytest

from fedlearn.terminal import Terminal, escape
from fedlearn.terminal.terminal import LOOK_S
from tests.terminal.emulator import Emulator
from tests.terminal.scene import BEGUN, Clock, metrics_of, status_of
from tests.terminal.test_guards import HARMFUL


class ClosedPipe(io.StringIO):
    def write(self, _: str) -> int:
        raise BrokenPipeError


def test_lines_say_how_long_a_limited_run_goes_on() -> None:
    for run_left_s, expected in ((300.0, "5 min left"), (None, "trial-tokens/s")):
        stream = io.StringIO()
        terminal = Terminal(stream=stream)
        terminal.on_status(status_of(run_left_s=run_left_s))
        terminal.on_step(metrics_of(7))
        assert stream.getvalue().endswith(f"{expected}\n")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "step     7  2.900 bits/character  2 volunteers   100k trial-episodes/s"),
        ({"volunteers": 1}, "step     7  2.900 bits/character  1 volunteer   100k trial-episodes/s"),
        ({"shown": {"reward": 12.5}}, "step     7  reward 12.5  2 volunteers   100k trial-episodes/s"),
        ({"shown": {}, "loss": None}, "step     7  no loss  2 volunteers   100k trial-episodes/s"),
    ],
)
def test_line_of_a_step_says_what_the_task_shows_in_its_unit(changes: dict[str, Any], line: str) -> None:
    stream = io.StringIO()
    terminal = Terminal(stream=stream)
    terminal.on_begin(BEGUN)
    terminal.on_step(msgspec.structs.replace(metrics_of(7), **changes))
    assert stream.getvalue() == f"{line}\n"


def test_volunteers_notices_and_looks_have_a_line_each() -> None:
    stream = io.StringIO()
    terminal = Terminal(stream=stream)
    terminal.on_join("Ada")
    terminal.on_leave("Ada", "the line broke")
    terminal.on_notice("listening")
    terminal.on_examined(8, {"bits_per_character": 2.5}, "It was")
    terminal.on_examined(9, {}, "")
    expected = ["Ada joined", "Ada left: the line broke", "listening"]
    assert stream.getvalue().splitlines() == [
        *expected,
        "step     8  validation 2.500 bits/character; it writes: It was",
    ]


def test_own_volunteers_join_with_a_line_where_all_is_to_be_said() -> None:
    for verbose, said in ((False, "Ada joined\n"), (True, "local-1 joined\nAda joined\n")):
        stream = io.StringIO()
        terminal = Terminal(stream=stream, verbose=verbose)
        terminal.on_local_join("local-1")
        terminal.on_join("Ada")
        assert stream.getvalue() == said


def test_what_a_look_found_stands_between_the_steps_before_and_after_it() -> None:
    stream, clock = io.StringIO(), Clock()
    terminal = Terminal(stream=stream, clock=clock)
    for step, clock.now in ((6, 100.0), (7, 100.5)):
        terminal.on_step(metrics_of(step))
    terminal.on_look(8)
    for step, clock.now in ((8, 100.6), (9, 102.0)):
        terminal.on_step(metrics_of(step))
    terminal.on_examined(8, {}, "It was")
    terminal.on_step(metrics_of(10))
    said = [line[:10] for line in stream.getvalue().splitlines()]
    assert said == ["step     6", "step     7", "step     8", "step    10"]


def test_steps_wait_for_a_look_no_longer_than_readers_would() -> None:
    stream, clock = io.StringIO(), Clock()
    terminal = Terminal(stream=stream, clock=clock)
    terminal.on_look(7)
    for step, clock.now in ((7, 100.0 + 0.9 * LOOK_S), (8, 100.0 + 1.1 * LOOK_S)):
        terminal.on_step(metrics_of(step))
    assert [line[:10] for line in stream.getvalue().splitlines()] == ["step     8"]


def test_last_step_has_its_line_in_the_end() -> None:
    stream = io.StringIO()
    terminal = Terminal(stream=stream)
    for step in (7, 8, 9):
        terminal.on_step(metrics_of(step))
    assert "step     9" not in stream.getvalue()
    terminal.on_end("all steps are done")
    assert [line[:10] for line in stream.getvalue().splitlines()] == ["step     7", "step     9"]


def test_no_step_is_said_after_a_later_one() -> None:
    stream, clock = io.StringIO(), Clock()
    terminal = Terminal(stream=stream, clock=clock)
    for step, clock.now in ((7, 100.0), (8, 100.5), (9, 102.0)):
        terminal.on_step(metrics_of(step))
    terminal.on_end("all steps are done")
    assert [line[:10] for line in stream.getvalue().splitlines()] == ["step     7", "step     9"]


@pytest.mark.parametrize("harmful", HARMFUL)
def test_what_a_terminal_would_obey_is_shown_as_an_escape(harmful: str) -> None:
    stream = io.StringIO()
    Terminal(stream=stream).say(f"<{harmful}>")
    assert stream.getvalue() == f"<{escape(harmful)}>\n"


def test_a_command_stands_at_the_end_of_its_line() -> None:
    stream = io.StringIO()
    terminal = Terminal(stream=stream)
    terminal.say("try next", command="fedlearn sample 1")
    terminal.say("", command="fedlearn eval 1")
    assert stream.getvalue() == "try next: fedlearn sample 1\nfedlearn eval 1\n"


def test_plain_is_what_a_file_would_get() -> None:
    screen, file = Emulator(), io.StringIO()
    for terminal in (Terminal(stream=screen, plain=True), Terminal(stream=file)):
        terminal.on_begin(BEGUN)
        terminal.on_step(metrics_of(7))
        terminal.on_status(status_of("Ada"))
        terminal.on_examined(8, {}, "It was\nso")
        terminal.on_end("all steps are done")
    assert screen.getvalue() == file.getvalue()
    assert file.getvalue().endswith("it writes: It was so\n")


@pytest.mark.parametrize("stream", [io.StringIO(), Emulator()])
def test_quiet_says_what_goes_wrong_and_the_end(stream: io.StringIO) -> None:
    terminal = Terminal(stream=stream, quiet=True)
    terminal.on_begin(BEGUN)
    terminal.on_join("Ada")
    terminal.on_notice("listening")
    terminal.on_step(metrics_of(7))
    terminal.on_status(status_of("Ada"))
    terminal.on_problem("Ada drifted")
    terminal.on_leave("Ada", "the line broke")
    terminal.on_examined(8, {"accuracy": 0.5}, "It was")
    terminal.on_step(metrics_of(8))
    terminal.on_end("all steps are done")
    terminal.end("all steps are done", command="go on")
    assert stream.getvalue() == "Ada drifted\nall steps are done: go on\n"


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_terminal_that_cannot_go_back_gets_lines(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", term)
    screen = Emulator()
    terminal = Terminal(stream=screen)
    terminal.on_begin(BEGUN)
    terminal.on_step(metrics_of(7))
    assert screen.getvalue().isascii()
    assert "\x1b" not in screen.getvalue()


def test_training_goes_on_when_nobody_reads() -> None:
    terminal = Terminal(stream=ClosedPipe())
    for step in (7, 8):
        terminal.say("hello")
        terminal.on_step(metrics_of(step))
    terminal.on_end("all steps are done")


def test_process_may_have_no_output_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    terminal = Terminal()
    terminal.say("hello")
    terminal.on_step(metrics_of(7))
    terminal.on_end("all steps are done")
