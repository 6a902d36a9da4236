"""What surrounds a server."""

import asyncio
import gc
import weakref

import pytest

from fedlearn.server import serving as module
from fedlearn.server.serving import sweep


class Line:
    """As asyncio's own: it holds a method of itself."""

    def __init__(self) -> None:
        self.read = self.close

    def close(self) -> None: ...


def test_cycles_that_grew_old_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SWEEP_S", 0.0)

    async def main() -> None:
        line = Line()
        gc.collect()  # which makes it an old one
        ended = weakref.ref(line)
        del line
        assert ended() is not None
        sweeping = asyncio.create_task(sweep())
        async with asyncio.timeout(30.0):
            while ended() is not None:
                await asyncio.sleep(0)
        sweeping.cancel()

    asyncio.run(main())
