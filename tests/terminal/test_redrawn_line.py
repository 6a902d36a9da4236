import io

from fedlearn.terminal.redrawn_line import RedrawnLine


def test_each_text_covers_the_one_before() -> None:
    stream = io.StringIO()
    line = RedrawnLine(stream)
    line.show("longer")
    line.show("short")
    line.keep()
    line.show("a\x1b[2J")
    assert stream.getvalue() == "\rlonger\rshort \n\ra\\x1b[2J"


def test_line_that_is_cleared_leaves_nothing() -> None:
    stream = io.StringIO()
    line = RedrawnLine(stream)
    line.clear()
    assert stream.getvalue() == ""
    line.show("here")
    line.clear()
    line.clear()
    assert stream.getvalue() == "\rhere\r    \r"
