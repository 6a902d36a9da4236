"""What the tests of channels say."""

import asyncio
from collections.abc import Callable

from fedlearn.net.channel import Channel
from fedlearn.tasks.invitation import Invitation
from fedlearn.wire.encoding.parcel import pack
from fedlearn.wire.messages import DataBlock, Hello, Message, Ping, Welcome
from fedlearn.wire.states import State
from tests.identities import hello_of
from tests.net.peers import Peer

NEVER_S = 3600.0
MIB = 2**20
HELLO = hello_of()
WELCOME = Welcome("7", Invitation("rnn", 3, {}, {}))
BLOCK = DataBlock(bytes(16), bytes(MIB))
PARCEL = pack(BLOCK)
N_BLOCKS = 64


def ignore(_: Message) -> None:
    """A message that nobody waits for."""


async def greeted(channel: Channel, peer: Peer, on_message: Callable[[Message], None] = ignore) -> "asyncio.Task[str]":
    """The channel, running, once the peer's Hello was read and a Pong came back."""
    running = asyncio.create_task(channel.run(on_message))
    await peer.say(HELLO)
    await peer.say(Ping())
    assert await peer.hear()
    return running


def fail(_: Message) -> None:
    raise RuntimeError("a bug")


def flooding(channel: Channel) -> Callable[[Message], None]:
    """Answers Hello by far more than the system takes for a peer that does not read."""

    def answer(message: Message) -> None:
        if isinstance(message, Hello):
            channel.connection.state = State.PROVEN  # as if it had proven who it is
            channel.send(WELCOME)
            for _ in range(N_BLOCKS):
                channel.send(BLOCK, PARCEL)

    return answer
