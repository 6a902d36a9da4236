"""The block at the bottom of a terminal, and the lines that stay above it."""

import sys

import msgspec
import pytest

from fedlearn.terminal import Terminal
from fedlearn.terminal.terminal import BLOCK_INTERVAL_S, KEPT_LINE_INTERVAL_S, LONG_STEP_S
from tests.terminal.emulator import Emulator
from tests.terminal.scene import BEGUN, Clock, metrics_of, status_of

FIRST = "step     7  2.900 bits/character  2 volunteers   100k trial-episodes/s"


@pytest.fixture(autouse=True)
def _columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "30")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def begun(screen: Emulator, clock: Clock) -> Terminal:
    terminal = Terminal(stream=screen, clock=clock)
    terminal.on_begin(BEGUN)
    terminal.on_status(status_of("Ada"))
    return terminal


def test_a_block_stands_below_the_lines_that_stay(clock: Clock) -> None:
    screen = Emulator()
    terminal = begun(screen, clock)
    clock.now += BLOCK_INTERVAL_S
    terminal.on_step(metrics_of(7))
    expected = ["run      12  step 8", "loss     2.900 bits/character  ▁", "speed    100k trial-episodes/s"]
    assert screen.lines == [FIRST, *expected, "machines 1 volunteer: Ada 100 %"]
    terminal.on_join("Bert")
    assert screen.lines[:2] == [FIRST, "Bert joined"]
    assert screen.lines[2:5] == expected
    assert screen.has_cursor


def test_the_block_is_renewed_no_faster_than_eyes_follow(clock: Clock) -> None:
    screen = Emulator()
    terminal = begun(screen, clock)
    clock.now += BLOCK_INTERVAL_S
    terminal.on_step(metrics_of(7))
    before = screen.getvalue()
    clock.now += 0.9 * BLOCK_INTERVAL_S
    terminal.on_step(metrics_of(8))
    assert screen.getvalue() == before
    clock.now += 0.2 * BLOCK_INTERVAL_S
    terminal.on_step(metrics_of(9))
    assert "run      12  step 10" in screen.lines


def test_a_line_of_figures_stays_now_and_then(clock: Clock) -> None:
    screen = Emulator()
    terminal = begun(screen, clock)
    for step in range(4):
        terminal.on_step(metrics_of(step))
        clock.now += KEPT_LINE_INTERVAL_S / 2
    assert [line[:10] for line in screen.lines if line.startswith("step")] == ["step     0", "step     2"]


def test_the_end_leaves_lines_alone_on_the_screen(clock: Clock) -> None:
    screen = Emulator()
    terminal = begun(screen, clock)
    terminal.on_step(metrics_of(7))
    clock.now += BLOCK_INTERVAL_S
    terminal.on_step(metrics_of(8))
    terminal.on_end("all steps are done")
    terminal.end("all steps are done; go on with", command="fedlearn serve")
    last = FIRST.replace("7", "8", 1)
    assert screen.lines == [FIRST, last, "all steps are done; go on with:", "  fedlearn serve"]
    assert screen.has_cursor


def test_a_sample_keeps_its_lines_and_stays_when_the_next_one_comes(clock: Clock) -> None:
    screen = Emulator()
    terminal = begun(screen, clock)
    clock.now += BLOCK_INTERVAL_S
    terminal.on_examined(8, {"accuracy": 0.5}, "It was\nso")
    block = ["writes   at step 8: validation accuracy 0.5", "         │ It was", "         │ so"]
    assert screen.lines[-3:] == block
    clock.now += BLOCK_INTERVAL_S
    terminal.on_examined(9, {"accuracy": 0.6}, "other")
    assert screen.lines[:3] == ["at step 8: validation accuracy 0.5", "  It was", "  so"]
    assert screen.lines[-2:] == ["writes   at step 9: validation accuracy 0.6", "         │ other"]
    terminal.on_end("all steps are done")
    assert screen.lines[3:] == ["at step 9: validation accuracy 0.6", "  other"]


def test_a_sample_stays_above_the_lines_of_later_steps(clock: Clock) -> None:
    screen = Emulator()
    terminal = begun(screen, clock)
    terminal.on_step(metrics_of(7))
    terminal.on_look(8)
    terminal.on_examined(8, {}, "It was")
    clock.now += KEPT_LINE_INTERVAL_S
    terminal.on_step(metrics_of(9))
    assert screen.lines[:4] == [FIRST, "at step 8", "  It was", FIRST.replace("7", "9", 1)]
    assert not any(line.startswith("writes") for line in screen.lines)


def test_a_look_after_the_end_brings_no_block_back(clock: Clock) -> None:
    screen = Emulator()
    terminal = begun(screen, clock)
    terminal.on_end("all steps are done")
    clock.now += BLOCK_INTERVAL_S
    terminal.show_examined(9, {"accuracy": 0.6}, "It was\nso")
    assert screen.lines == ["at step 9: validation accuracy 0.6", "  It was", "  so"]


def test_progress_and_time_left_follow_from_the_steps(clock: Clock) -> None:
    screen = Emulator()
    terminal = begun(screen, clock)
    terminal.on_status(status_of("Ada", steps=100))
    for step in range(51):
        clock.now += 2.0
        terminal.on_step(metrics_of(step))
    head = next(line for line in screen.lines if line.startswith("run"))
    assert head.startswith("run      12  step 51 of 100  ━━")
    assert head.endswith("51 %  98 s left")


def test_progress_follows_from_the_time_where_that_is_nearer(clock: Clock) -> None:
    screen = Emulator()
    terminal = Terminal(stream=screen, clock=clock)
    terminal.on_begin(BEGUN)
    status = status_of("Ada", steps=100, run_left_s=150.0)
    terminal.on_status(msgspec.structs.replace(status, duration_s=600.0))
    assert screen.lines[0].endswith("75 %  2 min left")
    clock.now += BLOCK_INTERVAL_S
    terminal.on_status(msgspec.structs.replace(status, duration_s=1200.0, run_left_s=750.0))
    assert screen.lines[0].endswith("38 %  12 min left")


def test_a_pause_is_said_as_long_as_it_lasts(clock: Clock) -> None:
    screen = Emulator()
    terminal = begun(screen, clock)
    terminal.on_step(metrics_of(7))
    paused = msgspec.structs.replace(status_of("Ada"), state="paused", reason="Ada paused it")
    said = []
    for status in (paused, msgspec.structs.replace(paused, open_step=None), status_of("Ada")):
        clock.now += BLOCK_INTERVAL_S
        terminal.on_status(status)
        said.append([line for line in screen.lines if line.startswith(("state", "speed"))])
    speed = "speed    100k trial-episodes/s"
    assert said == [["state    Ada paused it; the open step still ends"], ["state    Ada paused it"], [speed]]


def test_what_the_run_waits_for_is_said(clock: Clock) -> None:
    screen = Emulator()
    terminal = begun(screen, clock)
    waiting = [msgspec.structs.replace(status, state="waiting") for status in (status_of("Ada"), status_of())]
    for status, expected in zip(
        waiting, ("waiting until one has the weights, 1 volunteer: Ada 100 %", "waiting for volunteers"), strict=True
    ):
        clock.now += BLOCK_INTERVAL_S
        terminal.on_status(status)
        assert screen.lines[-1] == f"machines {expected}"


def test_a_long_step_says_when_it_gives_way(clock: Clock) -> None:
    screen = Emulator()
    terminal = begun(screen, clock)
    terminal.on_step(metrics_of(7))
    for passed_s, expected in ((0.9 * LONG_STEP_S, False), (2 * LONG_STEP_S, True)):
        clock.now = 100.0 + passed_s
        terminal.on_status(status_of("Ada", step_left_s=60.0))
        assert any(line.endswith("next step in 60 s") for line in screen.lines) is expected


def test_a_long_command_is_written_in_one_piece(clock: Clock) -> None:
    screen = Emulator(columns=200)
    terminal = begun(screen, clock)
    command = "fedlearn join 10.0.0.1:55551?fingerprint=" + 64 * "f"
    terminal.on_notice(f"listening on 10.0.0.1:55551; join with: {command}")
    assert screen.lines[:2] == ["listening on 10.0.0.1:55551; join with:", f"  {command}"]
    terminal.on_notice("listening; join with: fedlearn join")
    assert screen.lines[2] == "listening; join with: fedlearn join"
    address = "http://127.0.0.1:55580/#token=" + 64 * "t"
    terminal.on_notice(f"see, pause and stop runs in a browser: {address}")
    assert screen.lines[3:5] == ["see, pause and stop runs in a browser:", f"  {address}"]


def test_whatever_is_drawn_or_called_is_text(clock: Clock) -> None:
    screen = Emulator()
    terminal = begun(screen, clock)
    terminal.screen.draw("[red]drawn[/red] :smile:")
    terminal.say("try next", command="\x1b[2J")
    assert screen.lines[:3] == ["[red]drawn[/red] :smile:", "try next:", "  \\x1b[2J"]


def test_lines_wrap_between_words(clock: Clock) -> None:
    screen = Emulator()
    said = " ".join(f"word-{number}" for number in range(40))
    begun(screen, clock).say(said)
    above = screen.lines[:-2]
    assert len(above) > 1
    assert " ".join(above) == said


@pytest.mark.parametrize("name", ["[red]Ada[/red]", ":smile:", "\x1b[31mAda", "two\nlines", "\x9b31m"])
def test_a_name_is_text_and_nothing_else(name: str, clock: Clock) -> None:
    screen = Emulator()
    terminal = begun(screen, clock)
    terminal.on_join(name)
    clock.now += BLOCK_INTERVAL_S
    terminal.on_status(status_of(name))
    shown = name.encode("unicode_escape").decode() if not name.isprintable() else name
    assert f"{shown} joined" in screen.lines
    assert f"machines 1 volunteer: {shown} 100 %" in screen.lines


def test_no_colour_where_nobody_wants_it(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Emulator()
    terminal = begun(screen, clock)
    terminal.on_status(status_of("Ada", steps=10))
    clock.now += BLOCK_INTERVAL_S
    terminal.on_step(metrics_of(7))
    colours = {f"\x1b[{code}m" for code in (*range(30, 38), *range(90, 98))}
    assert not any(colour in screen.getvalue() for colour in colours)


def test_a_terminal_that_knows_ascii_alone_gets_that(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Emulator, "encoding", "ascii")
    screen = Emulator()
    terminal = begun(screen, clock)
    terminal.on_status(status_of("Ada", steps=10))
    clock.now += BLOCK_INTERVAL_S
    terminal.on_step(metrics_of(7))
    assert screen.getvalue().isascii()


def test_what_others_print_stands_above_the_block(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Emulator()
    monkeypatch.setattr("sys.stdout", screen)
    terminal = begun(screen, clock)
    print("a word of somebody else's")
    assert screen.lines[0] == "a word of somebody else's"
    terminal.on_end("all steps are done")
    assert sys.stdout is screen


def test_a_terminal_that_is_gone_ends_nothing(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Emulator()
    terminal = begun(screen, clock)
    monkeypatch.setattr(screen, "write", lambda _: (_ for _ in ()).throw(BrokenPipeError()))
    for step in range(3):
        clock.now += BLOCK_INTERVAL_S
        terminal.on_step(metrics_of(step))
        terminal.say("hello")
    terminal.on_end("all steps are done")
