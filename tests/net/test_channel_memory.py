"""Bytes that a channel leaves behind, by how it ended; nothing waits for a collection of garbage."""

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Iterator

import msgspec
import numpy as np
import pytest

from fedlearn.net import channel as module
from fedlearn.net.channel import Channel
from fedlearn.wire.encoding.frames import CHUNK_BYTES
from fedlearn.wire.encoding.parcel import Parcel, pack
from fedlearn.wire.errors import RemoteProtocolError
from fedlearn.wire.messages import Assignment, Message, Result
from fedlearn.wire.states import State
from tests.net.peers import Peer, joined
from tests.net.scene import MIB, greeted
from tests.wire.conftest import EXAMPLES

N_PEERS = 8
SIZE = 2 * MIB

WHOLE = pack(Result(0, 0, np.zeros(SIZE // 4, np.float32), bytes(8)))
NONSENSE = Parcel(Result, bytes([0x93, 3]) + bytes(SIZE))
"""A message that no decoder takes."""

N_OF_HALF = WHOLE.n_frames // 2
HALF = (N_OF_HALF - 1) * CHUNK_BYTES

End = Callable[[Channel, Peer], None]


def use(message: Message) -> None:
    """Fails as a server does where a Result meets a bug."""
    if isinstance(message, Result):
        try:
            fail(message)
        except RuntimeError as error:
            raise RemoteProtocolError(f"its Result raised {error}") from error


def fail(message: Message) -> None:
    """Fails as nobody expects."""
    if isinstance(message, Result):
        raise RuntimeError("a bug")


def be_too_slow(channel: Channel, _: Peer) -> None:
    assembly = channel.connection._assembly
    assert assembly is not None
    assembly.deadline = 0.0
    channel._tick()


def say_another(_: Channel, peer: Peer) -> None:
    peer.socket.send(NONSENSE.frame(0))


def say_nonsense(_: Channel, peer: Peer) -> None:
    peer.socket.send(bytes(100))


def be_dropped(channel: Channel, _: Peer) -> None:
    channel.drop("it kept too much waiting")


def hang_up(_: Channel, peer: Peer) -> None:
    peer.socket.close()


ENDS: dict[str, tuple[Parcel, Callable[[Message], None], End | None]] = {
    "undecodable": (NONSENSE, use, None),
    "refused": (WHOLE, use, None),
    "bug": (WHOLE, fail, None),
    "begun, then another": (WHOLE, use, say_another),
    "begun, then damaged": (WHOLE, use, say_nonsense),
    "begun, then too slow": (WHOLE, use, be_too_slow),
    "begun, then dropped": (WHOLE, use, be_dropped),
    "begun, then gone": (WHOLE, use, hang_up),
}
"""What the peer says, who hears it, and what follows on half of it; None: the peer says all of it."""


@pytest.fixture(autouse=True)
def _no_collection(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "TICK_S", 3600.0)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    yield
    tracemalloc.stop()
    gc.enable()


async def end_of(parcel: Parcel, hear: Callable[[Message], None], end: End | None) -> None:
    """Ends a channel on which a leased peer speaks."""
    assignment = EXAMPLES[Assignment]
    assert isinstance(assignment, Assignment)
    async with joined() as (channel, _, peer):
        running = await greeted(channel, peer, hear)
        channel.connection.state = State.ACTIVE
        channel.send(msgspec.structs.replace(assignment, quota=SIZE, group_size=1))
        for number in range(parcel.n_frames if end is None else N_OF_HALF):
            await peer.write(parcel.frame(number))
        if end is not None:
            while channel.connection.bytes_held < HALF:
                await asyncio.sleep(0)
            end(channel, peer)
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("kind", ENDS)
async def test_nothing_of_what_a_peer_said_outlives_its_channel(kind: str) -> None:
    await end_of(*ENDS[kind])
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    for _ in range(N_PEERS):
        await end_of(*ENDS[kind])
    after, peak = tracemalloc.get_traced_memory()
    assert peak - before > HALF  # it was there
    assert after - before < HALF
