"""Both ends of a conversation in one process, with the real protocol between them."""

from typing import final

from fedlearn.wire.connection import Connection
from fedlearn.wire.messages import Message


@final
class MemoryLink:
    """A client's and a server's connection whose bytes are carried by hand."""

    def __init__(self, *, now: float) -> None:
        self.client = Connection("client", now=now)
        self.server = Connection("server", now=now)

    def to_server(self, now: float) -> list[Message]:
        """Carries what the client has to send; gives the messages that arrive at the server."""
        return _carry(self.client, self.server, now)

    def to_client(self, now: float) -> list[Message]:
        """Carries what the server has to send; gives the messages that arrive at the client."""
        return _carry(self.server, self.client, now)


def _carry(sender: Connection, receiver: Connection, now: float) -> list[Message]:
    messages: list[Message] = []
    while data := sender.data_to_send():
        messages += receiver.receive_data(data, now)
    return messages
