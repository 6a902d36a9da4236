import pytest

from fedlearn.terminal.guards import escape, printable

HARMFUL = ["\x1b[2J", "a\rb", "two\nlines", "\x9b31m", "\u202e", "\ud800", "\x7f"]


@pytest.mark.parametrize("harmful", HARMFUL)
def test_what_a_terminal_would_obey_is_shown_as_an_escape(harmful: str) -> None:
    assert escape(harmful).isprintable()
    assert "\\" in escape(harmful)


def test_printable_text_stays_as_it_is() -> None:
    assert escape("Grüße, 世界 🙂 \\x1b") == "Grüße, 世界 🙂 \\x1b"


def test_lines_of_a_text_stay_and_the_rest_is_shown_as_an_escape() -> None:
    assert printable("a\tb\x1b[2J\nc\r") == "a\\tb\\x1b[2J\nc\\r"
