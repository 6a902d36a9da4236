import io

import msgspec
import pytest

from fedlearn.callback import Begun
from fedlearn.library.progress import INTERVAL_S, ProgressLine, is_watched
from tests.test_callback import METRICS, STATUS

BEGUN = Begun("7", folder=None, unit="tokens", step=5, n_parameters=1, settings={})
STEP = msgspec.structs.replace(METRICS, step=9, shown={"bits_per_character": 2.5}, work_per_s=2e6)


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)


def test_line_says_step_figures_speed_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stream = Clock(monkeypatch), io.StringIO()
    progress = ProgressLine(stream)
    progress.on_begin(BEGUN)
    progress.on_status(msgspec.structs.replace(STATUS, steps=40))
    progress.on_examined(9, {"bits_per_character": 2.75}, "")
    clock.now += 20.0
    progress.on_step(STEP)
    figures = "2.500 bits/character  held out 2.750 bits/character"
    assert stream.getvalue() == f"\rstep 10/40  {figures}  2M trial-tokens/s  2 min left"
    progress.on_status(msgspec.structs.replace(STATUS, steps=40, run_left_s=7.0))
    clock.now += 20.0
    progress.on_step(STEP)
    assert "  7 s left" in stream.getvalue()


def test_line_is_renewed_as_often_as_eyes_follow_and_covers_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stream = Clock(monkeypatch), io.StringIO()
    progress = ProgressLine(stream)
    for figure in (10.0, 2.0, 3.0):
        progress.on_step(msgspec.structs.replace(STEP, shown={"loss": figure}))
        clock.now += 0.6 * INTERVAL_S
    progress.on_end("all 10 steps are done")
    first, last, end = (line for line in stream.getvalue().split("\r") if line)
    assert ("loss 10" in first, "loss 3" in last, "loss 3" in end) == (True, True, True)
    assert len(last) == len(first)
    assert end.endswith("  all 10 steps are done\n")


def test_run_without_a_step_says_why_it_ended() -> None:
    stream = io.StringIO()
    ProgressLine(stream).on_end("the disk is full")
    assert stream.getvalue() == "\rthe disk is full\n"


def test_somebody_watches_a_terminal_and_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert not is_watched()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert is_watched()
    monkeypatch.setattr("sys.stdout", None)
    assert not is_watched()
    monkeypatch.setitem(__import__("sys").modules, "ipykernel", object())
    assert is_watched()
