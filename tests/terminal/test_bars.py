import io
import threading
from collections.abc import Callable

import pytest
from rich.console import Console

from fedlearn.terminal import bars
from fedlearn.terminal.bars import Bar, Bars
from tests.patience import LIMIT_S
from tests.terminal.emulator import Emulator
from tests.terminal.scene import Clock


def shown_until(stream: io.StringIO, has_come: Callable[[str], bool]) -> None:
    for _ in range(int(LIMIT_S / 0.01)):
        if has_come(stream.getvalue()):
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"waited for more than {stream.getvalue()!r}")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    for name in ("APPEARS_S", "RENEWED_S", "LINE_INTERVAL_S"):
        monkeypatch.setattr(bars, name, 0.01)


def test_names_in_a_bar_send_nothing_to_the_terminal() -> None:
    assert Bar("reading \x1b[2Ja\nb").drawn(80).plain.startswith("reading \\x1b[2Ja\\nb  ")


def test_amount_rate_and_time_left_are_said_once_they_are_known() -> None:
    clock = Clock()
    bar = Bar("replaying the journal", "steps", clock=clock)
    clock.now += 3.0
    assert bar.said() == "replaying the journal: 3 s"
    bar.reach(1, 100)
    assert bar.said() == "replaying the journal: 1 of 100 steps"
    clock.now += 2.0
    bar.reach(41)
    assert bar.said() == "replaying the journal: 41 of 100 steps, 20 steps/s, 3 s left"


def test_bytes_have_their_own_units() -> None:
    clock = Clock()
    bar = Bar("reading", "bytes", clock=clock)
    bar.reach(0, 3e9)
    clock.now += 2.0
    bar.reach(1e9)
    assert bar.said() == "reading: 1 GB of 3 GB, 500 MB/s, 4 s left"


def test_without_a_total_there_is_no_time_left_and_no_bar() -> None:
    clock = Clock()
    bar = Bar("writing", "tokens", clock=clock)
    bar.reach(0)
    clock.now += 2.0
    bar.reach(50)
    assert bar.said() == "writing: 50 tokens, 25 tokens/s"
    assert bar.share is None
    assert bar.drawn(80).plain == "writing  50 tokens  25 tokens/s"


def test_the_next_piece_of_work_begins_anew() -> None:
    clock = Clock()
    bar = Bar("reading", "bytes", 10, clock=clock)
    bar.reach(10)
    clock.now += 5.0
    bar.begin("measuring")
    assert bar.said() == "measuring: 0 s"
    assert bar.share is None


def test_more_than_all_is_all() -> None:
    bar = Bar("reading", "bytes", 10)
    bar.reach(15)
    assert bar.share == 1.0


@pytest.mark.parametrize("columns", [1, 20, 79, 80, 200])
def test_a_bar_fits_on_its_line(columns: int) -> None:
    clock = Clock()
    bar = Bar("replaying the journal", "steps", 3000, clock=clock)
    bar.reach(0)
    clock.now += 50.0
    bar.reach(1000)
    drawn = bar.drawn(columns)
    assert drawn.cell_len <= max(columns - 1, 1)
    if columns >= 80:
        assert drawn.plain.startswith("replaying the journal  ━━━")
        assert drawn.plain.endswith("1k of 3k steps  20 steps/s  100 s left")
    console = Console(width=columns, file=io.StringIO())
    assert len(console.render_lines(drawn)) == 1


def test_a_bar_goes_when_the_work_is_done() -> None:
    screen = Emulator()
    with Bars(stream=screen).bar("reading", "bytes", total=100) as bar:
        bar.reach(41)
        shown_until(screen, lambda written: "41 B of 100 B" in written)
        assert screen.lines[0].startswith("reading  ━")
    assert screen.lines == [""]
    assert screen.has_cursor


def test_no_bar_appears_for_what_is_over_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars, "APPEARS_S", LIMIT_S)
    screen = Emulator()
    with Bars(stream=screen).bar("reading"):
        pass
    assert screen.getvalue() == ""


@pytest.mark.parametrize(("stream", "plain"), [(io.StringIO(), False), (Emulator(), True)])
def test_where_there_is_no_bar_a_line_comes_now_and_then(stream: io.StringIO, plain: bool) -> None:
    with Bars(stream=stream, plain=plain).bar("reading", "bytes", total=100) as bar:
        bar.reach(41)
        shown_until(stream, lambda written: written.count("\n") > 1)
    assert set(stream.getvalue().splitlines()) == {"reading: 41 B of 100 B"}


@pytest.mark.parametrize("stream", [Emulator(), io.StringIO(), None])
def test_quiet_shows_nothing(stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    n_threads = threading.active_count()
    with Bars(stream=stream, quiet=True).bar("reading"):
        assert threading.active_count() == n_threads
    assert stream is None or stream.getvalue() == ""


def test_work_that_fails_takes_its_bar_along() -> None:
    screen = Emulator()

    def fail() -> None:
        with Bars(stream=screen).bar("reading"):
            shown_until(screen, bool)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert screen.lines == [""]
