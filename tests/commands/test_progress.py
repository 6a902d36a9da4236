import io

import pytest

from fedlearn.commands.progress import INTERVAL_S, replay_progress


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
