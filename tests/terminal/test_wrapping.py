import io

import pytest

from fedlearn.terminal.wrapping import columns_of, wrapped

TEXT = "go on with: fedlearn serve --resume trainingRuns/1 --duration 50"


@pytest.mark.parametrize("columns", [8, 20, 40, 80, 200])
def test_nothing_is_broken_within_a_word(columns: int) -> None:
    lines = wrapped(TEXT, columns, indent="  ").splitlines()
    assert " ".join(lines).split() == TEXT.split()
    assert all(len(line) <= columns or " " not in line.strip() for line in lines)
    assert all(line.startswith("  ") for line in lines)


def test_lines_that_are_there_stay() -> None:
    assert wrapped("first\nsecond line", 8) == "first\nsecond\nline"


def test_what_no_terminal_shows_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    assert (columns_of(None), columns_of(stream)) == (None, None)
    assert wrapped(TEXT, None) == TEXT
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "33")
    assert columns_of(stream) == 33
