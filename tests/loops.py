"""Tests that are coroutines: `tests/conftest.py` gives each of them a loop of its own."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

from tests.patience import LIMIT_S


def run(test: Coroutine[Any, Any, None]) -> None:
    """Runs a test; whatever its loop would only have logged fails it."""
    logged: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
        async with asyncio.timeout(LIMIT_S):
            await test

    asyncio.run(main())
    gc.collect(1)  # asyncio tells of an error that nobody asked for when it is forgotten
    assert logged == [], logged
