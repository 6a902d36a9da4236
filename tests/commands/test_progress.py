import io

import pytest

from fedlearn.commands.progress import INTERVAL_S, data_progress, replay_progress


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_long_replay_says_now_and_then_where_it_is() -> None:
    screen, now = Screen(), 0.0
    tell = replay_progress(screen, lambda: now)
    assert tell is not None
    for step in range(100):
        now = step * INTERVAL_S / 30
        tell(step)
    assert screen.getvalue() == "".join(f"replaying the journal: at step {step}\n" for step in (30, 60, 90))


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_nothing_is_said_where_nobody_looks(stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    assert replay_progress(stream) is None


def test_reading_long_data_says_now_and_then_how_far_it_is() -> None:
    screen, now = Screen(), 0.0
    tell = data_progress(screen, lambda: now)
    for done in range(100):
        now = done * INTERVAL_S / 30
        tell(done * 10**6, 10**8 if done < 50 else 0)
    assert screen.getvalue() == "reading data: 30%\nreading data: 60 MB\nreading data: 90 MB\n"


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_data_are_read_in_silence_where_nobody_looks(
    stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", None)
    now = 0.0
    tell = data_progress(stream, lambda: now)
    now = 2 * INTERVAL_S
    tell(1, 2)
    assert stream is None or stream.getvalue() == ""
