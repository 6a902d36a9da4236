"""Two connections, and the bytes between them."""

from typing import Literal, final

from fedlearn.es.snapshot import Snapshot
from fedlearn.es.update import Update
from fedlearn.wire.connection import Connection
from fedlearn.wire.messages import (
    Assignment,
    Challenge,
    DataBlock,
    Goodbye,
    Hello,
    Message,
    Proof,
    Ready,
    Result,
    Resync,
    Signature,
    Welcome,
)
from fedlearn.wire.states import MessageType, State

Side = Literal["client", "server"]
Examples = dict[MessageType, Message]

CONVERSATION: list[tuple[Side, MessageType, State]] = [
    ("client", Hello, State.GREETED),
    ("server", Challenge, State.CHALLENGED),
    ("client", Proof, State.PROVEN),
    ("server", Welcome, State.WELCOMED),
    ("server", DataBlock, State.WELCOMED),
    ("server", Snapshot, State.SYNCING),
    ("server", Update, State.SYNCING),
    ("client", Ready, State.ACTIVE),
    ("server", Assignment, State.ACTIVE),
    ("client", Result, State.ACTIVE),
    ("server", Update, State.ACTIVE),
    ("server", Resync, State.RESYNCING),
    ("client", Result, State.RESYNCING),
    ("server", Snapshot, State.SYNCING),
    ("client", Result, State.SYNCING),
    ("client", Ready, State.ACTIVE),
    ("client", Goodbye, State.ACTIVE),
]


BETWEEN_SEATS: list[tuple[Side, MessageType, State]] = [
    ("client", Hello, State.GREETED),
    ("server", Challenge, State.CHALLENGED),
    ("server", Signature, State.SIGNED),
    ("client", Signature, State.LINKED),
]
"""The seat before is the client."""
OF_SEATS = (State.SIGNED, State.LINKED)


@final
class ConnectionPair:
    """Two ends, and the bytes carried between them in pieces of `piece_bytes`."""

    def __init__(self, *, piece_bytes: int = 2**30, between_seats: bool = False) -> None:
        self.now = 0.0
        self.ends: dict[Side, Connection] = {
            "client": Connection("seat before" if between_seats else "client", now=0.0),
            "server": Connection("next seat" if between_seats else "server", now=0.0),
        }
        self.received: dict[Side, list[Message]] = {"client": [], "server": []}
        self._piece_bytes = piece_bytes

    @property
    def client(self) -> Connection:
        return self.ends["client"]

    @property
    def server(self) -> Connection:
        return self.ends["server"]

    def shuttle(self) -> None:
        """Carries bytes both ways until neither side has any left."""
        while sum([self._carry("client", "server"), self._carry("server", "client")]):
            pass

    def say(self, side: Side, message: Message) -> None:
        self.ends[side].send(message)
        self.shuttle()

    def _carry(self, sender: Side, receiver: Side) -> int:
        data = self.ends[sender].data_to_send()
        for start in range(0, len(data), self._piece_bytes):
            piece = data[start : start + self._piece_bytes]
            self.received[receiver] += self.ends[receiver].receive_data(piece, self.now)
        return len(data)


def pair_in(state: State, examples: Examples) -> ConnectionPair:
    pair = ConnectionPair(between_seats=state in OF_SEATS)
    for side, message_type, after in BETWEEN_SEATS if state in OF_SEATS else CONVERSATION:
        if pair.client.state is state:
            break
        pair.say(side, examples[message_type])
        assert pair.client.state is pair.server.state is after
    assert pair.client.state is state
    return pair
