import asyncio
import io
from contextlib import suppress
from typing import Any, final

import pytest

from fedlearn.client import showing as module
from fedlearn.client.showing import Showing
from fedlearn.terminal import Terminal
from fedlearn.terminal.drawing import Goal, LiveBlock
from tests.patience import LIMIT_S
from tests.terminal.emulator import Emulator

BLOCK = LiveBlock("12", Goal(7), None, (("lends", "all of it"),))


@final
class Line:
    """A line on which so much is arriving."""

    arriving: tuple[int, int] | None = None


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(module, "INTERVAL_S", 0.001)
    monkeypatch.setattr(module, "LINE_INTERVAL_S", 0.01)


async def shown(stream: io.StringIO, line: Any, text: str) -> None:  # noqa: ANN401
    """Until the text is there."""
    showing = asyncio.create_task(Showing(Terminal(stream=stream), lambda: BLOCK).show(line))
    async with asyncio.timeout(LIMIT_S):
        while text not in stream.getvalue():
            assert not showing.done(), showing.exception()
            await asyncio.sleep(0.001)
    showing.cancel()
    with suppress(asyncio.CancelledError):
        await showing


def test_a_block_stands_while_the_conversation_goes_on_and_is_gone_with_it() -> None:
    screen = Emulator()
    asyncio.run(shown(screen, Line(), "all of it"))
    assert screen.lines == [""]


@pytest.mark.parametrize("stream_type", [Emulator, io.StringIO])
def test_what_arrives_is_shown_first(stream_type: type[io.StringIO]) -> None:
    stream, line = stream_type(), Line()
    line.arriving = (41_000_000, 100_000_000)
    asyncio.run(shown(stream, line, "41 MB of 100 MB"))
    assert "receiving the run" in stream.getvalue()
    assert "all of it" not in stream.getvalue()


def test_nothing_is_shown_before_the_weights_are_here() -> None:
    async def renew() -> str:
        screen = Emulator()
        Showing(Terminal(stream=screen), lambda: None)._renew(None)
        return screen.getvalue()

    assert asyncio.run(renew()) == ""
