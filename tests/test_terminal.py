import io
from typing import Any

import msgspec
import pytest

from fedlearn.callback import Begun
from fedlearn.coordination.status import RunStatus, StepStatus
from fedlearn.storage.metrics import StepMetrics
from fedlearn.terminal import Terminal, escape, format_count, format_duration, format_figures, printable

STATUS = RunStatus(
    run="1",
    state="running",
    step=8,
    steps=0,
    run_left_s=None,
    members_per_s=1.0,
    open_step=StepStatus(1.5, 8, 64),
    volunteers=(),
)
EPISODES = Begun("1", folder=None, unit="episodes", step=0, n_parameters=1, settings={})


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


class ClosedPipe(io.StringIO):
    def write(self, _: str) -> int:
        raise BrokenPipeError


def metrics_of(step: int) -> StepMetrics:
    return StepMetrics(
        step=step,
        loss=2.0,
        shown={"bits_per_character": 2.9},
        members=64,
        work_per_s=1e5,
        volunteers=2,
        bytes_in=0,
        bytes_out=0,
        digest="",
        time=0.0,
    )


@pytest.mark.parametrize("columns", [1, 20, 60, 300])
def test_status_line_never_fills_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    screen = Screen()
    terminal = Terminal(stream=screen)
    terminal.on_step(metrics_of(7))
    line, status = screen.getvalue().split("\n")
    assert line.startswith("step     7")
    terminal.on_status(STATUS)
    status = screen.getvalue().split("\n")[1]
    assert status == line[: columns - 1]


def test_status_line_gives_way_to_a_line_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    screen = Screen()
    terminal = Terminal(stream=screen)
    terminal.on_step(metrics_of(7))
    terminal.on_status(STATUS)
    terminal.say("hello")
    assert screen.getvalue().endswith("\r\033[Khello\n")


def test_status_line_says_when_a_long_step_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    screen = Screen()
    terminal = Terminal(stream=screen)
    for now, expected in ((100.0, False), (100.5, False), (101.0, True), (107.0, True)):
        monkeypatch.setattr("time.monotonic", lambda now=now: now)
        if now == 100.0:
            terminal.on_step(metrics_of(7))
        screen.seek(0)
        screen.truncate()
        terminal.on_status(msgspec.structs.replace(STATUS, open_step=StepStatus(60.0, 8, 64)))
        assert screen.getvalue().endswith("next in 60 s") is expected


def test_lines_say_how_long_a_limited_run_goes_on() -> None:
    for run_left_s, expected in ((300.0, "5 min left"), (None, "trial-tokens/s")):
        stream = io.StringIO()
        terminal = Terminal(stream=stream)
        terminal.on_status(msgspec.structs.replace(STATUS, run_left_s=run_left_s))
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
    terminal.on_begin(EPISODES)
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
    assert stream.getvalue().splitlines() == [*expected, "validation 2.500 bits/character; it writes: It was"]


def test_figures_are_named_and_rates_have_their_unit() -> None:
    figures = {"bits_per_character": 2.3456, "top_5_accuracy": 0.91234, "loss": -1e6}
    assert format_figures(figures) == "2.346 bits/character, top 5 accuracy 0.9123, loss -1e+06"
    assert format_figures({}) == ""


def test_counts_and_durations_are_said_in_their_largest_unit() -> None:
    counts = [0.1234, 999, 1e3, 12345, 4.56e6, 7.89e9, 1e13]
    assert [format_count(number) for number in counts] == ["0.123", "999", "1k", "12.3k", "4.56M", "7.89G", "1e+04G"]
    durations = [0.4, 119, 120, 7199, 7200, 172800]
    assert [format_duration(seconds) for seconds in durations] == ["0 s", "119 s", "2 min", "120 min", "2 h", "2 d"]


def test_last_step_has_its_line_in_the_end() -> None:
    stream = io.StringIO()
    terminal = Terminal(stream=stream)
    for step in (7, 8, 9):
        terminal.on_step(metrics_of(step))
    assert "step     9" not in stream.getvalue()
    terminal.on_end("all steps are done")
    assert [line[:10] for line in stream.getvalue().splitlines()] == ["step     7", "step     9"]


def test_no_step_is_said_after_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    terminal = Terminal(stream=stream)
    for step, now in ((7, 100.0), (8, 100.5), (9, 102.0)):
        monkeypatch.setattr("time.monotonic", lambda now=now: now)
        terminal.on_step(metrics_of(step))
    terminal.on_end("all steps are done")
    assert [line[:10] for line in stream.getvalue().splitlines()] == ["step     7", "step     9"]


@pytest.mark.parametrize("harmful", ["\x1b[2J", "a\rb", "two\nlines", "\x9b31m", "\u202e", "\ud800", "\x7f"])
def test_what_a_terminal_would_obey_is_shown_as_an_escape(harmful: str) -> None:
    stream = io.StringIO()
    Terminal(stream=stream).say(f"<{harmful}>")
    assert stream.getvalue() == f"<{escape(harmful)}>\n"
    assert escape(harmful).isprintable()
    assert "\\" in escape(harmful)


def test_printable_text_stays_as_it_is() -> None:
    assert escape("Grüße, 世界 🙂 \\x1b") == "Grüße, 世界 🙂 \\x1b"


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


def test_lines_of_a_text_stay_and_the_rest_is_shown_as_an_escape() -> None:
    assert printable("a\tb\x1b[2J\nc\r") == "a\\tb\\x1b[2J\nc\\r"
