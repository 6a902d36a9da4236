import asyncio
import threading

import numpy as np
import pytest

from fedlearn.server.training.feed import Feed
from fedlearn.tasks import blocks


def test_blocks_reach_the_server_on_its_own_loop() -> None:
    feed, taken = Feed(), []

    async def serve() -> None:
        arrived = asyncio.Event()

        def take(columns: blocks.Columns, n_members: int) -> None:
            taken.append((columns["x"].tolist(), n_members, threading.get_ident()))
            arrived.set()

        feed.open(take)
        await asyncio.to_thread(feed.give, {"x": np.arange(2)}, n_members=3)
        await arrived.wait()

    asyncio.run(serve())
    assert taken == [([0, 1], 3, threading.get_ident())]


def test_a_block_that_no_message_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="take fewer rows at a time"):
        Feed().give({"x": np.broadcast_to(np.int8(0), (blocks.MAX_BLOCK_BYTES + 1,))})


def test_without_a_server_there_is_nobody_to_give_to() -> None:
    with pytest.raises(RuntimeError, match="start it first"):
        Feed().give({"x": np.arange(2)})
