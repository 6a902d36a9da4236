"""Both ends of a conversation in one process, which speak the real protocol."""

from typing import final

from fedlearn.wire.connection import Connection
from fedlearn.wire.messages import Message
from fedlearn.wire.tally import Tally


@final
class MemoryLink:
    """The connections of a client and a server, whose bytes are carried when a method is called."""

    def __init__(self, *, now: float, moments_bytes: int = 0, tally: Tally | None = None) -> None:
        """`tally` counts what the server sends and receives; `moments_bytes` is the length of a group's moments."""
        self.client = Connection("client", now=now)
        self.server = Connection("server", now=now, moments_bytes=moments_bytes, tally=tally)

    def to_server(self, now: float) -> list[Message]:
        """Carries the client's bytes; gives the messages that arrive at the server."""
        return _carry(self.client, self.server, now)

    def to_client(self, now: float) -> list[Message]:
        """Carries the server's bytes; gives the messages that arrive at the client."""
        return _carry(self.server, self.client, now)


def _carry(sender: Connection, receiver: Connection, now: float) -> list[Message]:
    messages: list[Message] = []
    while data := sender.data_to_send():
        messages += receiver.receive_data(data, now)
    return messages
